package downstream

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/proxy/tcpstate"
)

// What an HTTP/2 client may send of its bodies before they are read: h2Window of each request. A
// request that waits in line has its window full, so a connection has room for all of its
// requests: else the rest could not send theirs. A smaller window would break clients that send
// before they know it: until then it is 64 KiB (RFC 9113, section 6.9.2).
const (
	h2Window  = 64 << 10
	h2Streams = 100 // at once; RFC 9113, section 6.5.2, recommends no fewer
)

// goodbyeTime is between a GOAWAY and the end of its connection, if no request is on it. net/http
// would leave it open for a second, and somebody waits for its place.
const goodbyeTime = 20 * time.Millisecond

// h2Conn is a connection as net/http's server of HTTP/2 has it. To that it is one in the clear, also
// above TLS: it is known by what the client has said first.
type h2Conn struct {
	net.Conn // over TLS, or the client's
	client   *Conn
	said     string // by the client, that was read before
	frames   frameTimer
	server   *http.Server
	kept     atomic.Bool // it has been idle: after the preface, for the first time
}

// serveHTTP2 has net/http serve a connection whose client has said this much. It has a server of its
// own, so that it can be told to go alone.
func (s *Server) serveHTTP2(c *Conn, said string) {
	h := &h2Conn{Conn: c.over(), client: c, said: said, frames: frameTimer{limit: s.cfg.ReadHeaderTimeout}}
	h.server = &http.Server{
		Handler:     s.cfg.Handler,
		IdleTimeout: s.cfg.IdleTimeout,
		ErrorLog:    slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // see Config.Logger
		BaseContext: func(net.Listener) context.Context { return s.base },
		ConnContext: ConnContext,
		ConnState:   h.becomes,
		Protocols:   new(http.Protocols),
		// A write fails when the client takes no byte for as long as it may stall. The deadlines of
		// requests cannot end that: see Conn.CloseBlocked. net/http keeps a buffer for the largest frame
		// that may be announced.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: h2Streams, MaxReceiveBufferPerStream: h2Window, MaxReceiveBufferPerConnection: h2Streams * h2Window,
			MaxReadFrameSize: h2Window / 4, WriteByteTimeout: s.cfg.StallTimeout,
		},
		MaxHeaderBytes: s.cfg.MaxHeaderBytes,

		DisableGeneralOptionsHandler: true, // "OPTIONS *" is for the handler to judge, too
	}
	h.server.Protocols.SetUnencryptedHTTP2(true)
	c.on(isSwitched)
	c.http2.Store(h)
	_ = c.SetReadDeadline(time.Time{})
	_ = h.server.Serve(&single{conn: h}) // returns at once
}

// single is a listener that accepts one connection.
type single struct{ conn net.Conn }

func (s *single) Accept() (net.Conn, error) {
	conn := s.conn
	if s.conn = nil; conn == nil {
		return nil, io.EOF
	}
	return conn, nil
}

func (s *single) Addr() net.Addr { return nil }
func (s *single) Close() error   { return nil }

// becomes is net/http's ConnState. A connection is active before it is idle for the first time,
// when only the preface has come.
func (h *h2Conn) becomes(_ net.Conn, state http.ConnState) {
	e, limits := &h.client.entry, h.client.listener.limiter
	switch {
	case state == http.StateActive && h.kept.Load():
		limits.becomes(e, busy)
	case state == http.StateIdle && h.kept.Swap(true) && !limits.is(e, fresh):
		limits.becomes(e, idle)
	}
}

// Read implements net.Conn.
func (h *h2Conn) Read(p []byte) (int, error) {
	n := copy(p, h.said)
	h.said = h.said[n:]
	var err error
	if n == 0 {
		n, err = (*heard)(h.client).Read(p)
	}
	h.frames.read(h.client, p[:n])
	return n, err
}

// leave has the connection end, since others want its place. A GOAWAY names the last request that
// was seen, so that the client can send the others again.
func (h *h2Conn) leave() {
	c := h.client
	if tcpstate.HasUnread(c.raw) {
		c.listener.limiter.stays(&c.entry)
		return
	}
	ctx, cancel := context.WithTimeout(c.listener.base, goodbyeTime)
	defer cancel()
	if _ = h.server.Shutdown(ctx); !c.listener.limiter.is(&c.entry, busy) { // else a request has come before
		_ = h.Close()
	}
}

func (c *Conn) askToLeave() {
	if h := c.http2.Load(); h != nil {
		go h.leave()
		return
	}
	_ = c.reads.Interrupt(c.Conn)
}

func (c *Conn) askToStay() { _ = c.reads.Settle(c.Conn) }
