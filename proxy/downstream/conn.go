package downstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/deadline"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// Conn is a client's connection as a [Server] has accepted it, below TLS. It is safe for
// concurrent use, as a net.Conn is. Reads, writes and deadlines are the socket's.
type Conn struct {
	net.Conn          // speaks the PROXY protocol, if it must
	raw      net.Conn // as it was accepted
	listener *listener
	entry    entry                  // in the limiter
	acks     bool                   // the kernel tells what the client has acknowledged
	number   uint64                 // among the server's clients
	tls      *tls.Conn              // nil: it is in the clear
	http2    atomic.Pointer[h2Conn] // nil: it speaks something else
	reads    deadline.Reader
	writes   deadline.Writer
	answered atomic.Bool // the handler is done: what is written is the rest of its answer
	writing  atomic.Bool // a Write waits for the client, or is under way
	stalled  atomic.Bool // a Write was given up: the client does not read
	closing  atomic.Bool // Close waits for the client to have all that was written
	endsSoon atomic.Bool // EndSoon was called
	parts    atomic.Bool // TLS says goodbye: nothing is written for longer than partingTime
	inRecord bool        // the reader has bytes of which TLS has said nothing yet

	// Memo is the handler's, for who serves a request of HTTP/1.
	Memo any

	mu      sync.Mutex
	state   state
	left    bool            // the client has closed the connection, or its sending side
	reset   bool            // the client has reset the connection
	stopped bool            // the server has aborted what it serves
	watcher Watcher         // nil: there is none
	request *requestContext // of HTTP/1; nil: there is none
}

// Watcher is told when the client of a connection leaves. To that of a request it is the same when the
// server stops: the cause with which the request's context has ended is ErrStopped then.
type Watcher interface {
	// ClientLeft is called at most once: after Watch, when the client has closed the
	// connection or its sending side; after WatchReset, when it has reset the connection. It
	// must not block: other clients that leave are noticed after it.
	ClientLeft()
}

// over returns what HTTP is spoken over: tls, or the connection itself.
func (c *Conn) over() net.Conn {
	if c.tls != nil {
		return c.tls
	}
	return c
}

// NetConn returns the connection as it was accepted, for package tcpstate.
func (c *Conn) NetConn() net.Conn { return c.raw }

// Peer returns the client's address, without the zone of IPv6; invalid if it has none.
func (c *Conn) Peer() netip.Addr { return addrOf(c.RemoteAddr()) }

// IsTLS reports whether the connection is not in the clear.
func (c *Conn) IsTLS() bool { return c.tls != nil }

// IsWanted reports whether another client waits for the connection to end.
func (c *Conn) IsWanted() bool { return c != nil && c.listener.limiter.isFull() }

// Ends reports whether the server ends: the connection's next answer is its last.
func (c *Conn) Ends() bool { return c != nil && c.listener.limiter.ending.Load() }

// EndSoon makes the connection end when it has answered every request that has come: the last of
// the answers says so. It is for HTTP/1.
func (c *Conn) EndSoon() { c.endsSoon.Store(true) }

// TellsAcked reports whether the kernel tells what the client has acknowledged.
func (c *Conn) TellsAcked() bool { return c.acks }

// StallTimeout is how long the client may leave the gateway waiting for more of a body, or
// for room to write, where no pool bounds that; and at the end of every answer. A nil Conn
// is one of another server.
func (c *Conn) StallTimeout() time.Duration {
	if c == nil {
		return defaultStallTimeout
	}
	return c.listener.stallTime
}

// Direct returns what to read from, behind a PROXY header, and what to write to, for
// callers that copy bytes from now on and need net/http no more. In the clear these are the
// sockets, so that the kernel can copy.
func (c *Conn) Direct() (from io.Reader, to net.Conn) {
	_, _ = c.reads.Settle(c.Conn), c.writes.Settle(c.Conn)
	if c.tls != nil {
		return c.tls, c.tls
	}
	return c.Conn, c.raw
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.reads.Set(c.Conn, t) }

// SetWriteDeadline implements net.Conn. Crypto/tls gives its goodbye 5 s of its own, for which a client
// that does not read would keep its place.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if c.parts.Load() {
		if latest := time.Now().Add(partingTime); t.IsZero() || t.After(latest) {
			t = latest
		}
	}
	return c.writes.Set(c.Conn, t)
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite closes the sending side of an upgraded connection.
func (c *Conn) CloseWrite() error { return tcpstate.CloseWrite(c.raw) }

// Close implements net.Conn. To the watcher it is as if the client had left. A client that
// does not read is reset: otherwise the system would keep for minutes what was written to
// it. An idle connection
// whose client has not got all of the last answer is closed later: see deliver.
func (c *Conn) Close() error {
	switch {
	case c.closing.Load():
		return nil
	case c.listener.limiter.is(&c.entry, idle) && !c.stalled.Load() && !tcpstate.IsDelivered(c.raw) && c.closing.CompareAndSwap(false, true):
		c.listener.limiter.becomes(&c.entry, busy) // another one can make room sooner
		go c.deliver()
		return nil
	}
	return c.close()
}

// hangUp closes the connection, after TLS's goodbye.
func (c *Conn) hangUp() {
	c.parts.Store(true)
	_ = c.over().Close()
}

// close closes the connection now.
func (c *Conn) close() error {
	c.listener.clients.remove(c)
	if c.stalled.Load() {
		c.Drop()
	}
	err := c.Conn.Close()
	c.listener.limiter.leave(&c.entry)
	c.on(byUs)
	return err
}

// deliver closes the connection when its client has got all that was written, and has closed it,
// too. To net/http an answer is over when it is written, and over HTTP/2 the client acknowledges
// what it reads: a socket that is closed by then answers with a reset, and drops the rest. A client
// that takes nothing, or stays, is not waited for for long, and none for ever. The limiter counts
// the connection until the end.
func (c *Conn) deliver() {
	const (
		glance   = 20 * time.Millisecond // between two looks
		stayTime = time.Second           // for a client that has everything
		longest  = 5 * time.Minute
	)
	_ = tcpstate.CloseWrite(c.raw)
	left := make(chan struct{})
	go func() {
		defer close(left)
		c.discard()
	}()
	began := time.Now()
	for last, since := uint64(0), began; time.Since(began) < longest && !c.listener.limiter.hasEnded(); {
		select {
		case <-left:
			_ = c.close()
			return
		case <-time.After(glance):
		}
		if acked, _ := tcpstate.Acked(c.raw); acked != last {
			last, since = acked, time.Now()
		}
		patience := c.StallTimeout()
		if tcpstate.IsDelivered(c.raw) {
			patience = stayTime
		}
		if time.Since(since) >= patience {
			break
		}
	}
	_ = c.close()
	<-left
}

// discard reads until the client has closed the connection, or close has. A read of net/http's
// may be under way beside it, and set the deadline.
func (c *Conn) discard() {
	for {
		if _, err := io.Copy(io.Discard, c.raw); !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		_ = c.raw.SetReadDeadline(time.Time{})
	}
}

// CloseBlocked closes the connection if a write waits for the client.
func (c *Conn) CloseBlocked() {
	if c.writing.Load() {
		_ = c.Close()
	}
}

// Reset closes the connection so that its client does not take it for a connection that has ended
// in order.
func (c *Conn) Reset() {
	c.Drop()
	_ = c.Close()
}

// Drop makes Close reset the connection, and drop what has not been sent yet.
func (c *Conn) Drop() {
	tcpstate.ResetOnClose(c.raw, true)
}

// Watch has w told when the client leaves before Unwatch; at once if it has left already. There is
// one watcher at a time. When the client of a request of HTTP/1 leaves, writes fail until there is
// another deadline.
func (c *Conn) Watch(w Watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left || c.stopped {
		w.ClientLeft()
		return
	}
	c.watcher = w
}

// WatchReset has w told only when the client resets the connection, not when it closes its sending
// side: the connection goes on in another protocol than HTTP. It is for a time when nothing is
// read, which would show a reset.
func (c *Conn) WatchReset(w Watcher) {
	c.on(isSwitched)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reset {
		w.ClientLeft()
		return
	}
	c.watcher = w
}

// Unwatch ends the watch. When it returns, the watcher is not told any more.
func (c *Conn) Unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watcher = nil
}

// leave notes that the client has left. It never blocks: see disconnectWatch.
func (c *Conn) leave(reset bool) {
	if reset {
		c.on(gotReset)
		return
	}
	c.on(gotEnd)
}

// begin notes that a request has come.
func (c *Conn) begin(r *requestContext) {
	c.on(gotHead)
	c.mu.Lock()
	c.request = r
	left := c.left
	c.mu.Unlock()
	if left {
		r.end()
	}
}

// end notes that the handler has done with a request.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watcher, c.request = nil, nil
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.closing.Load() {
		return 0, io.EOF
	}
	n, err := c.reads.Read(c.Conn, p)
	if c.closing.Load() { // nobody would get an answer
		return 0, io.EOF
	}
	c.inRecord = c.inRecord || n > 0
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Store(true)
	n, err := c.writes.Write(c.Conn, p)
	if c.answered.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = c.writeOn(p, n, err)
	}
	c.writing.Store(false)
	c.noteStall(err)
	return n, err
}

// lookEvery is how often a write of the rest of an answer looks whether its client reads. A
// slow one may say for a second that it has no room.
const lookEvery = 2 * time.Second

// writeOn goes on with a write that has waited for lookEvery: for StallTimeout in all, but while others
// wait for the place only as long as the client reads. Else clients that send requests and read no
// answers would keep all places.
func (c *Conn) writeOn(p []byte, n int, err error) (int, error) {
	var last uint64
	for left := c.StallTimeout() - lookEvery; left > 0 && errors.Is(err, os.ErrDeadlineExceeded); left -= lookEvery {
		acked, _ := tcpstate.Acked(c.raw)
		if c.acks && acked == last && c.IsWanted() {
			break
		}
		last = acked
		_ = c.SetWriteDeadline(time.Now().Add(min(left, lookEvery))) // if it fails, so does the write
		var more int
		more, err = c.writes.Write(c.Conn, p[n:])
		n += more
	}
	return n, err
}

// noteStall notes whether a write failed because the client does not read. It may still read what was
// written before TLS's goodbye.
func (c *Conn) noteStall(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.parts.Load() {
		c.stalled.Store(true)
	}
}

// ReadFrom implements io.ReaderFrom.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if to, ok := c.raw.(io.ReaderFrom); ok {
		if err := c.writes.Settle(c.Conn); err != nil {
			return 0, err
		}
		n, err := to.ReadFrom(r)
		c.noteStall(err)
		return n, err
	}
	return io.Copy(struct{ io.Writer }{c}, r)
}

type connKey struct{}

// ConnContext is the ConnContext for an http.Server that serves a handler in place of a
// [Server], for [PollDisconnect].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnIn returns the connection that a request with this context came over; nil if the
// server is no [Server].
func ConnIn(ctx context.Context) *Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return unwrap(conn)
}

func unwrap(conn net.Conn) *Conn {
	switch c := conn.(type) {
	case *Conn:
		return c
	case *h2Conn:
		return c.client
	default:
		return nil
	}
}

// foreignConn returns the TCP connection that a request came over if the server is not
// ours and has ConnContext; else nil.
func foreignConn(ctx context.Context) *net.TCPConn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	for conn != nil {
		switch c := conn.(type) {
		case *Conn, *h2Conn:
			return nil
		case *net.TCPConn:
			return c
		case interface{ NetConn() net.Conn }: // such as *tls.Conn
			conn = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// on changes the connection's state, and returns what the caller has to do. It tells the watcher
// itself. It may be called from any goroutine, and does not block.
func (c *Conn) on(e event) effect {
	c.mu.Lock()
	was := c.state
	t := transitions[was][e]
	c.state = t.to
	switch e {
	case gotEnd, byUs:
		c.left = true
	case gotReset:
		c.left, c.reset = true, true
	default:
	}
	if t.do == tell {
		c.tellLocked(was)
	}
	c.mu.Unlock()
	if now := roles[t.to]; now != roles[was] && e != isSwitched { // HTTP/2 has its own
		c.listener.limiter.becomes(&c.entry, now)
	}
	return t.do
}

// tellLocked tells who waits for the client to leave that it has.
func (c *Conn) tellLocked(in state) {
	if c.request != nil {
		c.request.end()
	}
	if c.watcher == nil {
		return
	}
	c.watcher.ClientLeft()
	c.watcher = nil
	if c.request != nil && in == serving { // a client that has closed one side only may leave a write waiting for ever
		_ = c.SetWriteDeadline(longAgo)
	}
}

// stop tells who waits for the client of a request to leave that the server has stopped: the
// context of the request has ended.
func (c *Conn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.request != nil && c.watcher != nil {
		c.watcher.ClientLeft()
		c.watcher = nil
	}
}

// is reports whether the connection has this state.
func (c *Conn) is(s state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == s
}

// heard reads what the client says in the protocol above TLS.
type heard Conn

func (h *heard) Read(p []byte) (int, error) {
	n, err := (*Conn)(h).over().Read(p)
	h.inRecord = h.inRecord && n == 0
	return n, err
}
