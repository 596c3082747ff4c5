package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/peercall"
	"github.com/kgate/kgate/internal/peercert"
)

// raftStream puts a greeting in front of every raft connection: the cluster
// it belongs to and the server it is meant for. Raft itself checks neither, so
// that without it a restarted gateway with an empty memory would vote in the
// name of the one that was at its address before.
//
// Greeting: "kgate-raft/1 CLUSTER SERVER\n"; answer: one line, "ok" or why not.
type raftStream struct {
	layer StreamLayer
	// dialing yields the greeting's cluster; admit judges that of others.
	dialing func() string
	admit   func(conn net.Conn, cluster, server string) error
	timeout time.Duration
	logger  *slog.Logger
	// flush is called before anything is sent over a connection; guard returns one of
	// another gateway as raft is to see it.
	flush func() error
	guard func(net.Conn) net.Conn
	// tried is told what became of each dial.
	tried func(to peercall.To, err error)

	accepted chan net.Conn
	closing  context.Context
	close    context.CancelFunc
	wg       sync.WaitGroup
}

// closingConn is a connection that ends with the stream: raft's transport
// leaves those that it has open to their other ends.
type closingConn struct {
	net.Conn
	forget func() bool
	flush  func() error
}

// Write sends nothing before what it may speak of is on disk.
func (c closingConn) Write(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c closingConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func (s *raftStream) keep(conn net.Conn) net.Conn {
	return closingConn{conn, context.AfterFunc(s.closing, func() { _ = conn.Close() }), s.flush}
}

var _ raft.StreamLayer = (*raftStream)(nil)

const (
	greetingWord = "kgate-raft/1"
	greetingMax  = 1024
	// greetingsAtOnce bounds connections that have not said anything yet.
	greetingsAtOnce = 64
)

// errGreeting means that a raft connection was refused.
var errGreeting = errors.New("membership: raft connection refused")

func newRaftStream(layer StreamLayer, dialing func() string, admit func(conn net.Conn, cluster, server string) error, timeout time.Duration, logger *slog.Logger) *raftStream {
	s := &raftStream{
		layer: layer, dialing: dialing, admit: admit, timeout: timeout, logger: logger,
		accepted: make(chan net.Conn), flush: func() error { return nil },
		guard: func(conn net.Conn) net.Conn { return conn },
		tried: func(peercall.To, error) {},
	}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// open begins to take connections.
func (s *raftStream) open() { s.wg.Go(s.accept) }

func (s *raftStream) Dial(a raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.closing, min(timeout, s.timeout))
	defer cancel()
	addr, server := splitAddress(a)
	to := peercall.To{Name: nameOf(raft.ServerID(server)), Addr: addr}
	conn, err := s.dial(ctx, to, server)
	s.tried(to, err)
	return conn, err
}

func (s *raftStream) dial(ctx context.Context, to peercall.To, server string) (net.Conn, error) {
	conn, err := s.layer.Dial(ctx, to.Addr)
	if err != nil {
		return nil, err
	}
	err = peercert.OfConn(conn, to.Name)
	if err == nil {
		err = peercall.Through(conn, s.greet(ctx, conn, server))
	}
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, err
	}
	return s.keep(conn), nil
}

func (s *raftStream) greet(ctx context.Context, conn net.Conn, server string) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(s.closing, func() { _ = conn.Close() })
	defer stop()
	if _, err := fmt.Fprintf(conn, "%s %s %s\n", greetingWord, s.dialing(), server); err != nil {
		return fmt.Errorf("%w: %w", errGreeting, err)
	}
	answer, err := readLine(conn)
	if err != nil {
		return fmt.Errorf("%w: %w", errGreeting, err)
	}
	if answer != "ok" {
		return fmt.Errorf("%w: %s", errGreeting, answer)
	}
	return conn.SetDeadline(time.Time{})
}

// accept takes connections and greets each in a goroutine of its own.
func (s *raftStream) accept() {
	slots := make(chan struct{}, greetingsAtOnce)
	for {
		conn, err := s.layer.Accept()
		if err != nil {
			if s.closing.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of file descriptors, say
			case <-time.After(50 * time.Millisecond):
				continue
			case <-s.closing.Done():
				return
			}
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		s.wg.Go(func() {
			defer func() { <-slots }()
			s.welcome(conn)
		})
	}
}

func (s *raftStream) welcome(conn net.Conn) {
	stop := context.AfterFunc(s.closing, func() { _ = conn.Close() })
	err := s.judge(conn)
	if !stop() || err != nil {
		_ = conn.Close()
		if err != nil {
			s.logger.Debug("raft connection refused", slog.String("remote", conn.RemoteAddr().String()), slog.Any("error", err))
		}
		return
	}
	select {
	case s.accepted <- s.keep(s.guard(conn)):
	case <-s.closing.Done():
		_ = conn.Close()
	}
}

func (s *raftStream) judge(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	line, err := readLine(conn)
	if err != nil {
		return err
	}
	words := strings.SplitN(line, " ", 3)
	if len(words) != 3 || words[0] != greetingWord {
		return fmt.Errorf("%w: not a greeting", errGreeting)
	}
	if err := s.admit(conn, words[1], words[2]); err != nil {
		_, _ = fmt.Fprintf(conn, "%v\n", err) // it is refused either way
		return err
	}
	if _, err := io.WriteString(conn, "ok\n"); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// readLine reads byte by byte: what follows the line belongs to raft.
func readLine(conn net.Conn) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < greetingMax {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", fmt.Errorf("%w: greeting too long", errGreeting)
}

// Accept implements net.Listener.
func (s *raftStream) Accept() (net.Conn, error) {
	select {
	case conn := <-s.accepted:
		return conn, nil
	case <-s.closing.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *raftStream) Close() error {
	s.close()
	err := s.layer.Close()
	s.wg.Wait()
	return err
}

// Addr implements net.Listener.
func (s *raftStream) Addr() net.Addr { return s.layer.Addr() }
