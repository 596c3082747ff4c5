// Package memnet is a network within the process, for tests in virtual time.
package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Test runs a test in a bubble, with a network of its own. Time passes there only while
// everybody waits, so limits are reached to the instant, on any machine. What the kernel knows of a
// socket, nobody knows of these connections.
func Test(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		networks.Store(t, &Network{listeners: make(map[string]*listener), port: 50_000})
		t.Cleanup(func() { networks.Delete(t) })
		test(t)
	})
}

var networks sync.Map // testing.TB to *Network

// Of returns the network of a test in virtual time; nil: the test uses loopback.
func Of(t testing.TB) *Network {
	n, _ := networks.Load(t)
	network, _ := n.(*Network)
	return network
}

// Listen listens on loopback, or on what the test has in its place.
func Listen(t testing.TB) net.Listener { return ListenAt(t, "127.0.0.1:0") }

// ListenAt is Listen at an address.
func ListenAt(t testing.TB, address string) net.Listener {
	t.Helper()
	listen := new(net.ListenConfig).Listen
	if n := Of(t); n != nil {
		listen = n.Listen
	}
	l, err := listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Dialer makes connections.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// DialerOf returns what reaches the test's listeners.
func DialerOf(t testing.TB) Dialer {
	if n := Of(t); n != nil {
		return n
	}
	return new(net.Dialer)
}

// Network is a network within the process. It has no delay, and loses nothing.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	port      int // that was given last
}

// addressLocked returns one with a port that nobody has. The caller holds mu.
func (n *Network) addressLocked(ip net.IP) *net.TCPAddr {
	n.port++
	return &net.TCPAddr{IP: ip, Port: n.port}
}

// Listen has the signature of net.ListenConfig's.
func (n *Network) Listen(_ context.Context, _, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	addr := net.TCPAddrFromAddrPort(at)
	if addr.Port == 0 {
		addr = n.addressLocked(addr.IP)
	}
	l := &listener{addr: addr, backlog: make(chan *conn, 128), closed: make(chan struct{})}
	n.listeners[l.addr.String()] = l
	return l, nil
}

// DialContext has the signature of net.Dialer's.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return n.DialFrom(ctx, net.IPv4(127, 0, 0, 1), address)
}

// DialFrom dials from another address.
func (n *Network) DialFrom(ctx context.Context, ip net.IP, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	near := &conn{link: new(link), addr: n.addressLocked(ip), size: buffer}
	n.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	near.changed.L = &near.mu
	far := &conn{link: near.link, addr: l.addr, size: buffer, peer: near}
	near.peer = far
	select {
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	default:
	}
	select {
	case l.backlog <- far:
		return near, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type listener struct {
	addr    *net.TCPAddr
	backlog chan *conn // not accepted yet
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case c := <-l.backlog:
		return c, nil
	}
}

func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() { close(l.closed); err = nil })
	for {
		select {
		case c := <-l.backlog:
			_ = c.SetLinger(0)
			_ = c.Close()
		default:
			return err
		}
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

// buffer is how many bytes a connection takes that nobody reads.
const buffer = 64 << 10

// link is what both ends of a connection share.
type link struct {
	mu      sync.Mutex // never held by somebody who waits
	changed sync.Cond
}

// conn is one end of a connection, as a socket of TCP is one.
type conn struct {
	*link
	peer          *conn
	addr          *net.TCPAddr
	size          int    // of got, at most
	got           []byte // from the peer, and not read
	ended         bool   // the peer sends no more
	reset         bool   // by the peer
	closed        bool
	noLinger      bool
	reads, writes deadline
}

// deadline is one of a connection's, under its mu.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set sets the deadline. wake is called when it passes, if it has not: who sets it wakes all.
func (d *deadline) set(at time.Time, wake func()) {
	if d.timer != nil {
		d.timer.Stop()
	}
	// A timer that is over at once may crash the race detector in virtual time (golang/go#78156).
	if d.at = at; time.Until(at) > 0 {
		d.timer = time.AfterFunc(time.Until(at), wake)
	}
}

func (d *deadline) check() error {
	if !d.at.IsZero() && !time.Now().Before(d.at) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Broadcast()
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.reads.check()
		switch {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case len(p) == 0:
			return 0, nil
		case err != nil:
			return 0, c.failed("read", err)
		case len(c.got) > 0:
			n := copy(p, c.got)
			c.got = append(c.got[:0], c.got[n:]...)
			c.changed.Broadcast()
			return n, nil
		case c.reset:
			return 0, c.failed("read", syscall.ECONNRESET)
		case c.ended:
			return 0, io.EOF
		}
		c.changed.Wait()
	}
}

func (c *conn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err := c.writes.check()
		switch {
		case c.closed:
			return n, c.failed("write", net.ErrClosed)
		case err != nil:
			return n, c.failed("write", err)
		case c.reset:
			return n, c.failed("write", syscall.ECONNRESET)
		case c.peer.closed, c.peer.ended:
			c.reset = c.peer.closed // what comes for a closed socket is answered so
			return n, c.failed("write", syscall.EPIPE)
		}
		if room := min(c.peer.size-len(c.peer.got), len(p)-n); room > 0 {
			c.peer.got = append(c.peer.got, p[n:n+room]...)
			n += room
			c.changed.Broadcast()
		}
		if n == len(p) {
			return n, nil
		}
		c.changed.Wait()
	}
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.addr, Addr: c.peer.addr, Err: err}
}

// change calls f, unless the connection is closed.
func (c *conn) change(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.failed("set", net.ErrClosed)
	}
	f()
	c.changed.Broadcast()
	return nil
}

func (c *conn) Close() error {
	return c.change(func() {
		c.closed = true
		c.reads.set(time.Time{}, nil)
		c.writes.set(time.Time{}, nil)
		if c.noLinger || len(c.got) > 0 {
			c.peer.reset = true
		}
		c.peer.ended = true
	})
}

func (c *conn) CloseWrite() error       { return c.change(func() { c.peer.ended = true }) }
func (c *conn) SetLinger(sec int) error { return c.change(func() { c.noLinger = sec == 0 }) }
func (c *conn) SetReadBuffer(n int) error {
	return c.change(func() { c.size = n })
}
func (c *conn) LocalAddr() net.Addr  { return c.addr }
func (c *conn) RemoteAddr() net.Addr { return c.peer.addr }
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.change(func() { c.reads.set(t, c.wake) })
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.change(func() { c.writes.set(t, c.wake) })
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
