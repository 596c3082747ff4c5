package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/http1"
)

// ErrLapsed is returned in place of sending something without the right to send.
var ErrLapsed = errors.New("this gateway may no longer have requests in flight")

// DialError says why no connection could be made. The TLS handshake is part of
// that. Nothing of the request has been sent.
type DialError struct{ Err error }

// Error implements error.
func (e *DialError) Error() string { return "cannot connect: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// IsUnreachable reports whether err says that no connection could be made, be it to send a request
// again whose connection the server had ended.
func IsUnreachable(err error) bool {
	var dead *deadError
	return errors.As(err, new(*DialError)) || errors.As(err, &dead) && dead.again != nil
}

// Config of a Client. Durations of zero mean no bound.
type Config struct {
	// Scheme is http, https or h2c. With https the server chooses between HTTP/2
	// and HTTP/1.1, unless TLS.NextProtos says otherwise. Upgrades go over HTTP/1.1
	// all the same; with h2c there are none.
	Scheme string
	// Address is host and port, or the path of a Unix socket.
	Address string
	// Dial makes a connection to Address; nil: as usual.
	Dial func(ctx context.Context) (net.Conn, error)
	// Resolve is how long the addresses of the host's name are used before it is
	// looked up again. Connections to addresses that it no longer has carry no
	// further request.
	Resolve time.Duration
	// TLS is used for https; nil means the system's roots and TLS 1.2 or later.
	TLS *tls.Config
	// DialTimeout bounds connecting, TLS handshake included.
	DialTimeout time.Duration
	// ResponseHeaderTimeout bounds the time from the last byte of the request to
	// the header of the answer.
	ResponseHeaderTimeout time.Duration
	// IdleTimeout is how long a connection is kept unused.
	IdleTimeout time.Duration
	// MaxHeaderBytes of an answer. Default 1 MiB.
	MaxHeaderBytes int
	// Standing identifies the right to send: 0 while there is none, and a new
	// number each time it is regained. It must be fast and safe for concurrent
	// use. Nil: the right is never lost.
	Standing func() uint64
}

// Client makes requests to one server. It is safe for concurrent use.
type Client struct {
	cfg Config
	h2  *http.Transport // makes HTTP/2 connections of dialled ones

	ending sync.Mutex // held while the connections of a lapsed standing are closed

	mu       sync.Mutex
	standing uint64             // of all connections
	conns    map[*conn]struct{} // all that are open
	idle     []*http1Conn       // the longest unused first
	streams  []*http2           // that may take requests
	sharing  *sharedDial        // nil if none is under way
	speaksH2 bool               // the server chose HTTP/2 last
	retired  bool               // nothing is kept
	addrs    addresses          // of the server
	sweeper  *time.Timer        // closes what was idle too long; nil: nothing is idle
}

// New returns a Client without connections.
func New(cfg Config) *Client {
	if cfg.Standing == nil {
		cfg.Standing = func() uint64 { return 1 }
	}
	if cfg.MaxHeaderBytes == 0 {
		cfg.MaxHeaderBytes = 1 << 20
	}
	if cfg.Dial == nil {
		cfg.Dial = dialer(cfg.Address)
	}
	c := &Client{cfg: cfg, conns: make(map[*conn]struct{}), addrs: newAddresses(cfg.Address), speaksH2: cfg.Scheme == "h2c"}
	c.h2 = newHTTP2Transport(cfg)
	return c
}

func dialer(address string) func(context.Context) (net.Conn, error) {
	// A host that has gone without closing the connection is noticed within about half a minute.
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	network := "tcp"
	if filepath.IsAbs(address) {
		network = "unix"
	}
	return func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, address) }
}

// Do sends req and returns the answer's header. The caller must close the
// answer's body, also when it has been read to its end. It does not follow
// redirects, does not decompress, and does not close the request's body.
//
// The answer to a request that asked for an upgrade may have status 101. Its body
// is then a *Tunnel.
//
// When req's context ends, so does the request, and what reads its answer.
func (c *Client) Do(req *Request, caller Caller) (*Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, cause(req.Context())
	}
	res, err := c.try(req, caller, false)
	if err == nil {
		return res, nil
	}
	var dead *deadError
	if errors.As(err, &dead) && mayResend(req, dead) {
		res, err = c.try(req, caller, true)
		if !dead.unseen && errors.As(err, new(*DialError)) {
			dead.again, err = err, dead // not the DialError: something was sent before
		}
	}
	return res, err
}

// exchanger is a connection that has been chosen for a request.
type exchanger interface {
	roundTrip(req *Request, caller Caller) (*Response, error)
	// own returns the connection if no other request uses it meanwhile; else nil.
	own() net.Conn
	// unused gives it back instead of roundTrip.
	unused()
}

// try makes the request over one connection. The order matters: a caller
// that may still send after the connection was chosen has that right under the
// connection's standing.
func (c *Client) try(req *Request, caller Caller, fresh bool) (*Response, error) {
	upgrade := c.cfg.Scheme == "https" && req.Fields.Has(http1.Upgrade)
	for {
		over, reused, err := c.choose(req.Context(), upgrade, fresh)
		if err != nil {
			return nil, err
		}
		if err := caller.Check(); err != nil {
			over.unused()
			return nil, err
		}
		caller.Connected(over.own(), reused)
		if res, err := over.roundTrip(req, caller); err != errStale { // as roundTrip returns it
			return res, err
		}
	}
}

// deadError is returned when the server has ended a kept connection before it answered
// anything.
type deadError struct {
	err    error
	unseen bool  // the server has not looked at the request, of whose body nothing was read
	again  error // no connection could be made to send it again
}

func (e *deadError) Error() string {
	if e.again != nil {
		return e.err.Error() + "; then " + e.again.Error()
	}
	return e.err.Error()
}

func (e *deadError) Unwrap() error { return e.err }

// mayResend reports whether req may be sent again after its connection has failed
// (RFC 9110, section 9.2.2).
func mayResend(req *Request, dead *deadError) bool {
	if req.Context().Err() != nil || hasBody(req) && !dead.unseen {
		return false
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	default:
		return dead.unseen
	}
}
