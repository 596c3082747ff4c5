package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
)

// Gateways of these tests run in virtual time: as they ship, with raft, HTTP and TLS, over
// connections in memory, and with a gossip that says what is so. So their times are exact,
// however busy the machine.

// virtual runs a test in virtual time, beside others.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// An http.Server keeps a connection for half a second after it has refused a request.
		t.Cleanup(func() { time.Sleep(time.Second) })
		test(t)
	})
}

// quiet runs a test in real time, which needs a machine with nothing else to do. Disks that are
// slow have no virtual time: who waits for a lock, as others do meanwhile, keeps time from passing.
func quiet(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv("KGATE_SOAK") == "" {
		t.Skip("judges real times: with KGATE_SOAK=1, on a quiet machine")
	}
	test(t)
}

// wires are the listeners in memory, by address, of all tests.
var wires struct {
	sync.Mutex
	port      int
	listeners map[string]*wireListener
}

// newAddress returns one that nobody listens on.
func newAddress() string {
	wires.Lock()
	defer wires.Unlock()
	wires.port++
	return fmt.Sprintf("127.%d.%d.1:7080", wires.port/256, wires.port%256)
}

type wireListener struct {
	addr   wireAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type wireAddr string

func (a wireAddr) Network() string { return "tcp" }
func (a wireAddr) String() string  { return string(a) }

// listenWire listens in memory; at a new address if addr is empty.
func listenWire(tb testing.TB, addr string) net.Listener {
	tb.Helper()
	if addr == "" {
		addr = newAddress()
	}
	l := &wireListener{wireAddr(addr), make(chan net.Conn, 64), make(chan struct{}), sync.Once{}}
	wires.Lock()
	defer wires.Unlock()
	if wires.listeners == nil {
		wires.listeners = make(map[string]*wireListener)
	}
	if wires.listeners[addr] != nil {
		tb.Fatalf("%s: %v", addr, syscall.EADDRINUSE)
	}
	wires.listeners[addr] = l
	return l
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Addr() net.Addr { return l.addr }

func (l *wireListener) Close() error {
	l.once.Do(func() {
		wires.Lock()
		delete(wires.listeners, string(l.addr))
		wires.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// dialWire connects to what listens at addr.
func dialWire(ctx context.Context, addr string) (net.Conn, error) {
	wires.Lock()
	l := wires.listeners[addr]
	wires.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: wireAddr(addr), Err: syscall.ECONNREFUSED}
	}
	there, back := newPipe(), newPipe()
	near := &wireConn{in: back, out: there, local: wireAddr(newAddress()), remote: l.addr}
	far := &wireConn{in: there, out: back, local: l.addr, remote: near.local}
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.addr, Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipe is one direction of a connection.
type pipe struct {
	mu          sync.Mutex
	moved       *sync.Cond
	data        []byte
	ended       bool // there is no more to come
	abandoned   bool // nobody reads any more
	read, write deadline
}

// deadline is when one side of a pipe stops waiting.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// mostInPipe is what a pipe holds, as the buffers of a connection do.
const mostInPipe = 256 << 10

func newPipe() *pipe {
	p := new(pipe)
	p.moved = sync.NewCond(&p.mu)
	return p
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (p *pipe) set(d *deadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if left := time.Until(at); !at.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.moved.Broadcast()
		})
	}
	p.moved.Broadcast()
}

// wireConn is one end of a connection in memory.
type wireConn struct {
	in, out       *pipe
	local, remote wireAddr
}

func (c *wireConn) Read(b []byte) (int, error) {
	p := c.in
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.abandoned:
			return 0, net.ErrClosed
		case p.read.over():
			return 0, os.ErrDeadlineExceeded
		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			p.moved.Broadcast()
			return n, nil
		case p.ended:
			return 0, io.EOF
		}
		p.moved.Wait()
	}
}

func (c *wireConn) Write(b []byte) (n int, err error) {
	p := c.out
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.ended:
			return n, net.ErrClosed
		case p.abandoned:
			return n, syscall.ECONNRESET
		case p.write.over():
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		case len(p.data) < mostInPipe:
			part := min(len(b), mostInPipe-len(p.data))
			p.data = append(p.data, b[:part]...)
			b, n = b[part:], n+part
			p.moved.Broadcast()
			continue
		}
		p.moved.Wait()
	}
}

func (c *wireConn) Close() error {
	for _, p := range []*pipe{c.in, c.out} {
		p.mu.Lock()
		if p == c.in {
			p.abandoned = true
		} else {
			p.ended = true
		}
		for _, d := range []*deadline{&p.read, &p.write} {
			if d.timer != nil {
				d.timer.Stop()
			}
		}
		p.moved.Broadcast()
		p.mu.Unlock()
	}
	return nil
}

func (c *wireConn) LocalAddr() net.Addr                 { return c.local }
func (c *wireConn) RemoteAddr() net.Addr                { return c.remote }
func (c *wireConn) SetReadDeadline(at time.Time) error  { c.in.set(&c.in.read, at); return nil }
func (c *wireConn) SetWriteDeadline(at time.Time) error { c.out.set(&c.out.write, at); return nil }
func (c *wireConn) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

// agent is what a gateway has of the gossip.
type agent interface {
	Discovery
	Addr() string
	Problem() error
	Leave() error
	Close() error
}

var _ agent = (*serfring.Agent)(nil)

// Times of the gossip in virtual time: until news is everywhere, and until one that says
// nothing any more is called failed.
const (
	newsTakes    = 50 * time.Millisecond
	failureTakes = 2 * time.Second
)

// rumours are a gossip in memory: all who have joined each other know each other.
type rumours struct {
	mu     sync.Mutex
	agents []*rumourAgent // that have been, in the order of their starts
}

type rumourAgent struct {
	all     *rumours
	self    serfring.Member // guarded by all.mu, as all below
	join    []string
	group   *rumourAgent // of those who know each other; nil: itself
	closed  bool
	changed chan struct{}
}

func (r *rumours) start(conf serfring.Config) *rumourAgent {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &rumourAgent{all: r, join: conf.Join, changed: make(chan struct{}, 1), self: serfring.Member{
		Name: conf.Name, PeerAddr: conf.PeerAddr, Boot: conf.Boot, Expect: conf.Expect, Status: serfring.StatusAlive, Addr: conf.Bind,
	}}
	r.agents = append(r.agents, a)
	for _, b := range r.agents { // who waited for this one joins, too
		for _, addr := range b.join {
			for _, c := range r.agents {
				if !b.closed && !c.closed && c.self.Addr == addr {
					b.root().group = c.root()
				}
			}
		}
	}
	r.tell()
	return a
}

func (a *rumourAgent) root() *rumourAgent {
	for a.group != nil && a.group != a {
		a = a.group
	}
	a.group = nil
	return a
}

// tell wakes all when the news has got to them. The caller holds mu.
func (r *rumours) tell() {
	for _, a := range r.agents {
		if a.closed {
			continue
		}
		time.AfterFunc(newsTakes, func() {
			select {
			case a.changed <- struct{}{}:
			default:
			}
		})
	}
}

func (a *rumourAgent) Members() []serfring.Member {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	known := make(map[string]serfring.Member)
	for _, b := range a.all.agents { // the newest of a name counts
		if b.root() == a.root() {
			known[b.self.Name] = b.self
		}
	}
	var members []serfring.Member
	for _, m := range known {
		members = append(members, m)
	}
	slices.SortFunc(members, func(x, y serfring.Member) int { return strings.Compare(x.Name, y.Name) })
	return members
}

func (a *rumourAgent) Changed() <-chan struct{} { return a.changed }
func (a *rumourAgent) Problem() error           { return nil }

func (a *rumourAgent) Addr() string {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	return a.self.Addr
}

func (a *rumourAgent) SetBoot(boot string) error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.self.Boot = boot
	a.all.tell()
	return nil
}

func (a *rumourAgent) Leave() error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.self.Status = serfring.StatusLeft
	a.all.tell()
	return nil
}

func (a *rumourAgent) Close() error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.closed = true
	time.AfterFunc(failureTakes, func() {
		a.all.mu.Lock()
		defer a.all.mu.Unlock()
		if a.self.Status == serfring.StatusAlive {
			a.self.Status = serfring.StatusFailed
			a.all.tell()
		}
	})
	return nil
}
