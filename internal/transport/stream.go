package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Stream hands out the plain connections of one kind. It is a net.Listener,
// and dials the same kind at other gateways.
type Stream struct {
	t    *Transport
	kind StreamKind
	done chan struct{}
	// ready has room for all that reserve lets in.
	ready chan net.Conn

	mu       sync.Mutex
	wanted   bool // Stream has been called
	closed   bool
	reserved int
}

var _ net.Listener = (*Stream)(nil)

func newStream(t *Transport, kind StreamKind, backlog int) *Stream {
	return &Stream{t: t, kind: kind, done: make(chan struct{}), ready: make(chan net.Conn, backlog)}
}

// Stream returns the streams of a kind, StreamRaft or StreamControl; always the same for the same kind. Before the first call such
// connections are refused. It panics for any other kind.
func (t *Transport) Stream(kind StreamKind) *Stream {
	if kind <= streamLink || kind >= streamEnd {
		panic("transport: no streams of kind " + kind.String())
	}
	s := t.streams[kind]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = true
	return s
}

// Accept waits for the next connection.
func (s *Stream) Accept() (net.Conn, error) {
	select {
	case conn := <-s.ready:
		s.unreserve()
		return conn, nil
	case <-s.done:
		return nil, fmt.Errorf("%w: %s stream: %w", ErrClosed, s.kind, net.ErrClosed)
	}
}

// Addr returns where peers reach this gateway's port.
func (s *Stream) Addr() net.Addr { return s.t.addr }

// Close refuses further connections and closes those that wait. The port
// stays open for the others. It never fails.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.done)
	for {
		select {
		case conn := <-s.ready:
			_ = conn.Close()
		default:
			return nil
		}
	}
}

// Dial connects to the same kind of stream at addr, a peer port. It returns when the other
// end has accepted; the error says why it did not.
func (s *Stream) Dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.t.config.handshakeTimeout)
	defer cancel()
	raw, conn, err := s.t.dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("transport: dial %s: %w", s.kind, err)
	}
	err = bound(ctx, raw, func() error {
		if _, err := conn.Write(appendPreamble(nil, s.kind)); err != nil {
			return err
		}
		return readAnswer(conn)
	})
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("transport: dial %s %s: %w", s.kind, addr, err)
	}
	return conn, nil
}

// reserve makes room for one connection that waits for Accept.
func (s *Stream) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wanted || s.closed || s.reserved == cap(s.ready) {
		return false
	}
	s.reserved++
	return true
}

// refusal says why reserve failed.
func (s *Stream) refusal() (status, Cause, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // this gateway is stopping
		return statusKind, CauseIncomplete, fmt.Errorf("%s streams are closed", s.kind)
	}
	if !s.wanted {
		return statusKind, CauseKind, fmt.Errorf("no %s streams are accepted here", s.kind)
	}
	return statusBusy, CauseBacklog, fmt.Errorf("%d %s streams wait", cap(s.ready), s.kind)
}

func (s *Stream) unreserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
}

// push hands a connection to Accept.
func (s *Stream) push(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return
	}
	s.ready <- conn // reserved: does not block
}

// dial connects to a peer port, with TLS if the transport has it. Raw is what
// lies below conn.
func (t *Transport) dial(ctx context.Context, addr string) (raw *securedConn, conn net.Conn, err error) {
	if t.ctx.Err() != nil {
		return nil, nil, ErrClosed
	}
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	opened, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	raw = t.secured.below(opened)
	conn, err = t.secure(ctx, raw, false)
	if err != nil {
		_ = raw.Close()
		return nil, nil, fmt.Errorf("%s: %w", addr, err)
	}
	return raw, conn, nil
}

// bound calls f, whose use of conn fails when ctx has ended.
func bound(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0)) // in the past
	})
	err := f()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// readAnswer reads the other end's answer to a preamble.
func readAnswer(conn net.Conn) error {
	var b [preambleSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		if errors.Is(err, io.EOF) || isReset(err) {
			return fmt.Errorf("no answer: the other end is not a kgate, or refuses this gateway: %w", err)
		}
		return err
	}
	return decodeAnswer(b[:])
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
