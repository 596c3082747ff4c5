package downstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/deadline"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/tcpstate"
)

const (
	// partingTime is for a client that has to close its connection after its last answer: a
	// request that crosses would reset it, and the answer with it.
	partingTime = 500 * time.Millisecond
	// mostFields of a head. The handler may take fewer, and says so in its own words.
	mostFields = 256
	// mostTrailer is how many bytes there may be behind a request's body.
	mostTrailer = 4 << 10
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// client is a connection over which requests of HTTP/1 come, one after the other. It is for one
// goroutine: what others do to the connection they do to its Conn.
type client struct {
	server *Server
	conn   *Conn
	in     http1.Input
	head   http1.Head
	remote string // the client's address
}

// serveTLS serves a connection over TLS.
func (s *Server) serveTLS(c *Conn) {
	s.begin(c)
	if !c.shakeHands(s) {
		_ = c.Close()
		return
	}
	go s.serveClient(c) // a goroutine that waits would keep the stack that the handshake needs
}

// begin bounds the time for a connection's first head.
func (s *Server) begin(c *Conn) {
	if s.base.Err() != nil {
		c.stop() // abort may not have found this connection
	}
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.ReadHeaderTimeout))
}

// serveClient serves a connection until it ends, or goes on in another protocol.
func (s *Server) serveClient(c *Conn) {
	if c.tls == nil {
		s.begin(c)
	}
	cl := &client{server: s, conn: c}
	cl.in.Reset((*heard)(c), s.cfg.MaxHeaderBytes)
	if !s.cfg.OnlyHTTP1 {
		switch is, ok := cl.speaksHTTP2(); {
		case !ok:
			c.hangUp()
			return
		case is:
			said := string(cl.in.Buffered())
			cl.in.Discard(len(said))
			cl.in.Release()
			s.serveHTTP2(c, said)
			return
		}
	}
	for cl.next() {
	}
	if !c.is(tunnel) {
		c.hangUp()
	}
}

// speaksHTTP2 reads until it is clear whether the connection begins as one of HTTP/2 does. It
// reports false if the connection is over before.
func (cl *client) speaksHTTP2() (is, ok bool) {
	for {
		said := cl.in.Buffered()
		n := min(len(said), len(clientPreface))
		switch {
		case string(said[:n]) != clientPreface[:n]:
			return false, true
		case n == len(clientPreface):
			return true, true
		}
		if n > 0 {
			cl.conn.on(gotBytes)
		}
		if !cl.fill() {
			return false, false
		}
	}
}

// next serves the next request, and reports whether another one may follow.
func (cl *client) next() bool {
	n, err := cl.readHead()
	if n == 0 {
		if rule := http1.Rule(0); errors.As(err, &rule) {
			cl.refuse(rule.Status(), rule.Text())
		}
		return false
	}
	framing, err := cl.head.RequestFraming()
	if rule := http1.Rule(0); errors.As(err, &rule) {
		cl.refuse(rule.Status(), rule.Text())
		return false
	}
	w := newAnswer(cl)
	if err := w.request.Fill(&cl.head, framing); err != nil {
		cl.refuse(http.StatusBadRequest, "the target cannot be read")
		return false
	}
	expects := cl.head.HasToken(http1.Expect, "100-continue") && cl.head.Minor() > 0
	if cl.head.Find(http1.Expect) >= 0 && !expects && cl.head.Minor() > 0 {
		cl.refuse(http.StatusExpectationFailed, "the expectation cannot be met")
		return false
	}
	cl.in.Discard(n)
	cl.in.Release()
	w.request.Ahead = cl.in.Size()
	cl.head.Reset()
	return cl.serve(w, framing, expects)
}

// readHead reads until a whole head is there, and returns its length; 0: there is none. The error
// is a http1.Rule, or the connection's.
func (cl *client) readHead() (int, error) {
	for {
		n, err := cl.head.Request(cl.in.Buffered(), http1.Limits{Bytes: cl.server.cfg.MaxHeaderBytes, Fields: mostFields})
		if n > 0 || err != nil {
			return n, err
		}
		if cl.in.Len() > 0 && cl.conn.on(gotBytes) == boundHead {
			_ = cl.conn.SetReadDeadline(time.Now().Add(cl.server.cfg.ReadHeaderTimeout)) // if it fails, so does the next read
		}
		if !cl.fill() {
			return 0, io.EOF
		}
	}
}

// fill reads once. It reports false if the connection is over.
func (cl *client) fill() bool {
	for {
		err := cl.in.Fill()
		if !errors.Is(err, deadline.ErrInterrupted) {
			return err == nil
		}
		if ends, came := cl.makeRoom(); ends || came {
			return came
		}
	}
}

// lastCall is for what the kernel has and the runtime has not noticed yet.
const lastCall = time.Millisecond

// makeRoom decides what to do when the limiter wants the connection's place: it ends, unless some
// of a request has come that was not read yet.
func (cl *client) makeRoom() (ends, came bool) {
	c := cl.conn
	if c.is(isIdle) {
		_ = c.SetReadDeadline(time.Now().Add(lastCall)) // if it fails, so does the read
		switch err := cl.in.Fill(); {
		case err == nil:
			return false, true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return true, false
		case c.inRecord: // TLS has some of it
			c.on(gotBytes)
			_ = c.SetReadDeadline(time.Now().Add(cl.server.cfg.ReadHeaderTimeout))
			return false, false
		case tcpstate.HasUnread(c.raw): // on a machine that stood
			_ = c.reads.Interrupt(c.Conn)
			return false, false
		}
	} else if tcpstate.HasUnread(c.raw) {
		c.listener.limiter.stays(&c.entry)
		return false, false
	}
	return c.on(isFull) == end, false
}

// refuse answers what is no request that the handler could judge.
func (cl *client) refuse(status int, text string) {
	a := http1.Answer{Status: status, Body: []byte(text + "\n"), Close: true, Fields: http1.Fields{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}}}
	out, err := a.Append(nil, time.Now())
	if err != nil {
		return
	}
	c := cl.conn
	c.listener.limiter.logRefusal(c.RemoteAddr(), fmt.Sprintf("%d %s: %s", status, http.StatusText(status), text))
	_ = c.SetWriteDeadline(time.Now().Add(LingerTimeout))
	if _, err = c.over().Write(out); err == nil && c.on(isLast) == drain {
		cl.drain(LingerTimeout)
	}
}

// serve has the handler answer a request, and reports whether another one may follow.
func (cl *client) serve(w *answer, framing http1.Framing, expects bool) bool {
	c, cfg, r := cl.conn, &cl.server.cfg, &w.request
	if cl.remote == "" {
		cl.remote = c.RemoteAddr().String()
	}
	r.Remote, r.Secure = cl.remote, c.tls != nil
	if framing.Kind == http1.None {
		w.body.ended.Store(true)
	} else {
		w.body.expects = expects
		r.Body = &w.body
	}
	w.body.body.Reset(&cl.in, framing, http1.Limits{Bytes: mostTrailer, Fields: mostFields})
	_, _ = c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(writeDeadline(cfg.WriteTimeout))
	c.begin(&w.ctx)
	whole := cl.handle(w)
	c.end()
	w.ctx.end()
	defer w.release(whole)
	if w.hijacked {
		return false
	}
	if !whole {
		if w.body.finish(); w.endsByClose() {
			c.Reset() // what ends in order is whole to its client
		}
		return false
	}
	if cfg.WriteTimeout == 0 {
		_ = c.SetWriteDeadline(time.Now().Add(min(cfg.StallTimeout, lookEvery)))
		c.answered.Store(true)
	}
	again := w.finish()
	c.answered.Store(false)
	read := w.body.finish()
	switch {
	case w.err != nil:
		return false
	case again && read:
		c.on(isAnswered)
		_ = c.SetReadDeadline(time.Now().Add(cfg.IdleTimeout))
		return true
	case c.on(isLast) != drain:
	case !read:
		cl.drain(LingerTimeout)
	case !r.Close || w.isFollowed():
		cl.drain(partingTime)
	}
	return false
}

func writeDeadline(after time.Duration) time.Time {
	if after == 0 {
		return time.Time{}
	}
	return time.Now().Add(after)
}

// handle calls the handler, and reports whether it has returned in order.
func (cl *client) handle(w *answer) (whole bool) {
	defer func() {
		switch v := recover(); {
		case whole || v == http.ErrAbortHandler: // a panic's value is compared as net/http does
		case v != nil:
			cl.server.cfg.Logger.Error("panic while serving a request", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		}
	}()
	if direct := cl.server.direct; direct != nil {
		direct.ServeRequest(&w.ctx, w, &w.request)
	} else {
		cl.handOver(w)
	}
	return true
}

// handOver calls a handler of net/http's.
func (cl *client) handOver(w *answer) {
	var state *tls.ConnectionState
	if cl.conn.tls != nil {
		s := cl.conn.tls.ConnectionState()
		state = &s
	}
	cl.server.cfg.Handler.ServeHTTP(w, adapt.ToHTTP(&w.ctx, &w.request, state))
}

// drain reads and drops what the client still sends: a connection that is closed with unread bytes
// is reset, and its client may lose an answer that it has not read yet (RFC 9112, section 9.6).
func (cl *client) drain(within time.Duration) {
	c := cl.conn
	if c.stalled.Load() || c.listener.limiter.hasEnded() {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(within))
	if c.parts.Store(true); c.tls != nil {
		_ = c.tls.CloseWrite()
	}
	_ = tcpstate.CloseWrite(c.raw)
	cl.in.Discard(cl.in.Len())
	cl.in.Release()
	_, _ = c.SetReadDeadline(time.Now().Add(within)), c.reads.Settle(c.Conn)
	c.listener.limiter.becomes(&c.entry, drained) // from now on it may be asked to leave, which ends the copy
	_, err := io.Copy(io.Discard, c.raw)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.on(timedOut)
	}
}

// shakeHands is TLS's beginning, within the time for a request's head. It reports whether the
// connection may go on.
func (c *Conn) shakeHands(s *Server) bool {
	_ = c.SetWriteDeadline(time.Now().Add(s.cfg.ReadHeaderTimeout))
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	err := c.tls.HandshakeContext(s.base)
	if err == nil {
		return true
	}
	if header := (tls.RecordHeaderError{}); errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader) {
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		err = errors.New("the client sent HTTP in the clear")
	}
	c.listener.limiter.logger.Debug("TLS handshake failed", slog.String("remote", c.RemoteAddr().String()), slog.Any("error", err))
	return false
}

// looksLikeHTTP reports whether the first bytes of a connection are those of a request in HTTP/1.
func looksLikeHTTP(first [5]byte) bool {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions} {
		if strings.HasPrefix(method+" /", string(first[:])) {
			return true
		}
	}
	return false
}
