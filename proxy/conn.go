package proxy

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/deadline"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// clientConn is a client's connection as it was accepted, below TLS. The limiter
// counts it until it is closed.
type clientConn struct {
	net.Conn          // speaks the PROXY protocol, if it must
	raw      net.Conn // as it was accepted
	limiter  *connLimiter
	watch    *disconnectWatch // nil: not watched
	watched  bool             // the kernel tells when the client leaves
	token    uint64           // under which watch knows it
	frames   *frameTimer      // of HTTP/2 in the clear; nil above TLS, which has its own
	reads    deadline.Reader
	writes   deadline.Writer
	writing  atomic.Bool // a Write waits for the client, or is under way
	stalled  atomic.Bool // a Write was given up: the client does not read

	// Guarded by limiter.mu.
	gone  bool
	fresh bool          // it has sent no request yet
	idle  *list.Element // its place in limiter.idle; nil: it is busy

	mu      sync.Mutex
	served  bool             // a request has come since the connection was new or idle
	left    bool             // the client has closed the connection, or its sending side
	request *exchangeContext // of the HTTP/1 request in progress; nil: there is none
	onLeave func()           // of a TCP connection that waits in line; nil: there is none
	lingers time.Time        // until when Close reads what is left of a request; zero: it does not

	// unread is set while a request is in progress during which nothing need be read:
	// it has no body, and the kernel tells when the client leaves.
	unread atomic.Bool
	endBuf *byte // the reader's buffer, for looksForEnd; nil: not known yet
}

// NetConn returns the connection as it was accepted, which the kernel knows.
func (c *clientConn) NetConn() net.Conn { return c.raw }

// Read implements net.Conn.
func (c *clientConn) Read(p []byte) (int, error) {
	if len(p) == 1 && c.looksForEnd(&p[0]) {
		return 0, nil
	}
	n, err := c.reads.Read(c.Conn, p)
	if c.frames != nil {
		c.frames.read(c, p[:n])
	}
	return n, err
}

// looksForEnd reports whether a read is the one by which net/http finds out that the
// client has left, which is not needed here: see disconnect.go. Its buffer gives it away,
// one byte that is the same for all requests of a connection. That buffer is learned from
// a read at a time when there is no other.
func (c *clientConn) looksForEnd(buf *byte) bool {
	if c.unread.Load() {
		c.endBuf = buf
	}
	return buf == c.endBuf
}

// SetReadDeadline implements net.Conn.
func (c *clientConn) SetReadDeadline(t time.Time) error { return c.reads.Set(c.Conn, t) }

// SetWriteDeadline implements net.Conn.
func (c *clientConn) SetWriteDeadline(t time.Time) error { return c.writes.Set(c.Conn, t) }

// SetDeadline implements net.Conn.
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// settle has the socket itself keep the deadlines, for who reads from it and writes to it.
func (c *clientConn) settle() {
	_, _ = c.reads.Settle(c.Conn), c.writes.Settle(c.Conn)
}

// CloseWrite closes the sending side of an upgraded connection.
func (c *clientConn) CloseWrite() error { return tcpstate.CloseWrite(c.raw) }

// Close implements net.Conn. It cancels the request in progress. A client that does not
// read is reset: otherwise the system would keep for minutes what it was to be sent.
// After lingerFor it may take until then, unless it is called again.
func (c *clientConn) Close() error {
	c.linger()
	c.watch.remove(c)
	c.limiter.leave(c)
	if c.stalled.Load() {
		c.drop()
	}
	err := c.Conn.Close()
	c.leave()
	return err
}

// lingerFor has Close read what is left of a request, for as long at most. A connection
// that is closed with unread bytes is reset, and its client may lose an answer that it
// has not read yet (RFC 9112, section 9.6). net/http sees to that by itself, but not
// after "Expect: 100-continue", nor if the client has asked for the connection to be
// closed.
func (c *clientConn) lingerFor(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingers = time.Now().Add(d)
}

func (c *clientConn) linger() {
	c.mu.Lock()
	until := c.lingers
	c.lingers = time.Time{}
	c.mu.Unlock()
	if until.IsZero() || c.stalled.Load() || c.limiter.hasEnded() {
		return
	}
	_ = tcpstate.CloseWrite(c.raw) // this was the answer
	_ = c.raw.SetReadDeadline(until)
	_, _ = io.Copy(io.Discard, c.raw)
}

// reset closes a TCP connection so that its client does not take it for one that has
// ended in order.
func (c *clientConn) reset() {
	c.drop()
	_ = c.Close()
}

// drop has Close reset the connection, and drop what has not been sent yet.
func (c *clientConn) drop() {
	if tcp, ok := c.raw.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}

// begin cancels the request when the client leaves before end; at once if it has
// left already. A connection serves one HTTP/1 request at a time. It reports
// whether only the kernel tells that the client has left.
func (c *clientConn) begin(request *exchangeContext, bodyless bool) (alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = true
	if c.left {
		request.cancel(nil)
		return true
	}
	c.request = request
	// Above TLS, net/http's read also finds a client that says goodbye and stays.
	alone = bodyless && c.watched && c.frames != nil
	c.unread.Store(alone)
	return alone
}

// wrote looks at what is written to the client. What is written before the handler
// has seen a request are net/http's own refusals, of which it says nothing.
func (c *clientConn) wrote(p []byte) {
	const status = "HTTP/1.1 "
	if len(p) < len(status)+3 || string(p[:len(status)]) != status || p[len(status)] < '4' {
		return
	}
	c.mu.Lock()
	served := c.served
	c.mu.Unlock()
	if !served {
		head, _, _ := strings.Cut(string(p[len(status):min(len(p), 200)]), "\r\n")
		c.limiter.logRefusal(c.RemoteAddr(), head)
	}
}

// Write implements net.Conn.
func (c *clientConn) Write(p []byte) (int, error) {
	if c.frames != nil { // else TLS is above
		c.wrote(p)
	}
	c.writing.Store(true)
	n, err := c.writes.Write(c.Conn, p)
	c.writing.Store(false)
	c.noteStall(err)
	return n, err
}

// noteStall notes whether a write failed because the client does not read.
func (c *clientConn) noteStall(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.stalled.Store(true)
	}
}

// idled notes that the connection waits for its next request.
func (c *clientConn) idled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = false
}

// end ends what begin has begun. When it returns, the request is not cancelled any
// more.
func (c *clientConn) end() {
	c.unread.Store(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = nil
}

// beginWait has left called when the client of a TCP connection leaves before endWait; at
// once if it has left already. It must not block.
func (c *clientConn) beginWait(left func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		left()
		return
	}
	c.onLeave = left
}

// endWait ends what beginWait has begun.
func (c *clientConn) endWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onLeave = nil
}

// leave notes that the client has left. It waits for nothing: see disconnectWatch.
func (c *clientConn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	if c.onLeave != nil {
		c.onLeave()
		c.onLeave = nil
	}
	if c.request != nil {
		c.request.cancel(nil)
		// A client that has closed one side only may leave a write waiting for ever.
		_ = c.SetWriteDeadline(time.Unix(1, 0))
		c.request = nil
	}
}

type connKey struct{}

// ConnContext is for the ConnContext of an http.Server that is not ours. Without it, a
// client of such a server that leaves before the body of its HTTP/1.1 request was
// read keeps its place in line.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// foreignConn returns the TCP connection that a request came over if the server is not
// ours and has ConnContext; else nil.
func foreignConn(ctx context.Context) *net.TCPConn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	for conn != nil {
		switch c := conn.(type) {
		case *clientConn, *secureConn:
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

// connOf returns the connection that a request came over, nil if the server is
// not ours, and the TLS connection above it, nil if there is none.
func connOf(ctx context.Context) (*clientConn, *secureConn) {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return unwrapConn(conn)
}

func unwrapConn(conn net.Conn) (*clientConn, *secureConn) {
	switch c := conn.(type) {
	case *clientConn:
		return c, nil
	case *secureConn:
		return c.client, c
	default:
		return nil, nil
	}
}
