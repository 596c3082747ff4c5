package kgate

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

// fencedHTTP2 takes net/http's place when a connection of a Transport speaks HTTP/2: there
// a request that is cancelled returns before the reset of its stream is written. Here it
// returns after that, so that its slot may go to another request.
type fencedHTTP2 struct {
	entitled  func() uint64
	maker     *http.Transport // makes HTTP/2 of a connection
	singleUse bool            // each connection serves one request

	mu    sync.Mutex
	conns map[http2Host][]*http2Conn
}

// newFencedHTTP2 installs one in base, if base speaks HTTP/2 at all.
func newFencedHTTP2(base *http.Transport, entitled func() uint64) *fencedHTTP2 {
	f := &fencedHTTP2{entitled: entitled, conns: make(map[http2Host][]*http2Conn)}
	f.maker = base.Clone() // and base has net/http's own HTTP/2 in TLSNextProto, if it is to have any
	f.maker.Proxy, f.maker.DialTLSContext = nil, nil
	//lint:ignore SA1019 the caller's
	f.maker.Dial, f.maker.DialTLS = nil, nil
	f.maker.TLSNextProto, f.maker.TLSClientConfig = nil, nil
	f.singleUse, f.maker.DisableKeepAlives = base.DisableKeepAlives, false // net/http would promise room that it does not have
	upstream.ForStreams(f.maker)
	for name := range base.TLSNextProto {
		if name == "h2" || name == "unencrypted_http2" { // the second is how net/http names h2c
			base.TLSNextProto[name] = f.take
		}
	}
	return f
}

// take takes over a connection that base has made. It returns what serves requests to its
// host from now on, until that has no connection with room for another request.
func (f *fencedHTTP2) take(authority string, c *tls.Conn) http.RoundTripper {
	h := http2Host{f, authority, true}
	made := &http2Conn{conn: c, made: time.Now()}
	if inClear, ok := c.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
		h.secure, made.conn = false, inClear.UnencryptedNetConn()
	} else {
		state := c.ConnectionState()
		made.tls = &state
	}
	made.below = fencedBelow(made.conn)
	made.below.shared = true
	made.below.onClose = func() { h.forget(made) }
	var err error
	made.Streams, err = upstream.NewStreams(context.Background(), f.maker, authority, made.conn, http2Socket{made.below})
	if err != nil {
		_ = made.conn.Close()
		return brokenHost{err}
	}
	if !h.add(made) {
		made.CloseIfIdle()
	}
	return h
}

// closeIdle closes the connections that no request uses.
func (f *fencedHTTP2) closeIdle() {
	f.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(f.conns))...)
	f.mu.Unlock()
	for _, c := range all {
		c.CloseIfIdle()
	}
}

// http2Host is a host that speaks HTTP/2.
type http2Host struct {
	*fencedHTTP2
	authority string
	secure    bool
}

// http2Conn is a connection that several requests use at a time.
type http2Conn struct {
	*upstream.Streams
	conn  net.Conn // below, or TLS above it
	below *fencedConn
	tls   *tls.ConnectionState // nil: in the clear
	made  time.Time
	used  bool // guarded by fencedHTTP2.mu
}

// isNew reports whether the connection has served nobody and is young.
func (c *http2Conn) isNew() bool { return !c.used && time.Since(c.made) < time.Second }

// http2Socket is a connection below HTTP/2. Its Close breaks all requests off.
type http2Socket struct{ *fencedConn }

// Close implements upstream.Socket.
func (s http2Socket) Close() error {
	s.serves.Store(new(use))
	return s.fencedConn.Close()
}

// brokenHost is how net/http learns of an error of take.
type brokenHost struct{ err error }

// RoundTripErr is what net/http looks for.
func (b brokenHost) RoundTripErr() error { return b.err }

// RoundTrip implements http.RoundTripper.
func (b brokenHost) RoundTrip(*http.Request) (*http.Response, error) { return nil, b.err }

// noRoomError has net/http make another connection.
type noRoomError struct{}

func (noRoomError) Error() string { return "kgate: no HTTP/2 connection has room for a request" }

// IsHTTP2NoCachedConnError is what net/http looks for.
func (noRoomError) IsHTTP2NoCachedConnError() {}

var errNeverServes = errors.New("kgate: the server has closed the HTTP/2 connection at once, or takes no requests over it")

// add adds a connection. It reports false if another one has room already, which another
// request has made meanwhile.
func (h http2Host) add(c *http2Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.conns[h] {
		if other.below.under == c.below.under && other.Available() > 0 && !h.singleUse {
			return false
		}
	}
	h.conns[h] = append(h.conns[h], c)
	return true
}

// forget removes a connection that is closed. A new one stays for a while, for begin to see
// that the server has closed it at once.
func (h http2Host) forget(c *http2Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.isNew() {
		time.AfterFunc(time.Second, func() { h.forget(c) })
		return
	}
	left := slices.DeleteFunc(h.conns[h], func(other *http2Conn) bool { return c == other })
	if h.conns[h] = left; len(left) == 0 {
		delete(h.conns, h)
	}
}

// begin returns a connection with a request begun, and whether others used it before.
func (h http2Host) begin() (c *http2Conn, reused bool, err error) {
	under := h.entitled()
	h.mu.Lock()
	defer h.mu.Unlock()
	err = noRoomError{}
	for _, other := range h.conns[h] {
		switch {
		case other.below.under != under:
			go func() { _ = http2Socket{other.below}.Close() }() // whatever it carries is lost
		case (!h.singleUse || !other.used) && other.Begin():
			reused, other.used = other.used, true
			return other, reused, nil
		case other.InFlight() == 0 || other.Err() != nil:
			if other.isNew() {
				err = errNeverServes // or net/http would make one connection after the other
			} else {
				go other.CloseIfIdle() // the server lets it take nothing more
			}
		}
	}
	return nil, false, err
}

// maxAgain bounds how often a request is sent again that the server has not looked at.
const maxAgain = 6

// RoundTrip implements http.RoundTripper.
func (h http2Host) RoundTrip(r *http.Request) (*http.Response, error) {
	for again := 0; ; again++ {
		res, err := h.once(r)
		if err == nil || again == maxAgain || !upstream.IsUnseen(err) {
			return res, err
		}
		hasBody := r.Body != nil && r.Body != http.NoBody
		if hasBody && r.GetBody == nil {
			return nil, err
		}
		select {
		case <-time.After(10 * time.Millisecond << again):
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
		if hasBody {
			r = r.WithContext(r.Context())
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// once sends a request. When it fails, or the answer's body is closed, the stream is closed
// on the wire.
func (h http2Host) once(r *http.Request) (*http.Response, error) {
	c, reused, err := h.begin()
	if err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.conn, Reused: reused})
	}
	if h.singleUse {
		r = r.WithContext(r.Context())
		r.Close = true
	}
	res, err := c.Exchange(r)
	if err == nil {
		res.TLS = c.tls
	}
	return res, err
}
