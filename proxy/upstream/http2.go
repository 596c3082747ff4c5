package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// closeTimeout is how long a stream may take to close once its exchange is over. If
// it is not closed by then, the connection is taken for dead, and closed.
const closeTimeout = 5 * time.Second

// lookInterval is how often an exchange that is over looks for its stream without
// being told to: net/http's state hook tells nothing of a stream that began and
// ended while the hook ran.
const lookInterval = 5 * time.Millisecond

// http2 is a connection that speaks HTTP/2. Its streams are net/http's.
//
// net/http counts a stream (ClientConn.InFlight) from its reservation until it is
// closed on the wire: both sides have ended it, or a reset was written or read. One
// that was reset before anything was heard from the server counts until the server
// has answered a PING that went with the reset. The one gap is between a
// reservation and the request's HEADERS: if the server has lowered its limit
// meanwhile, the request waits uncounted.
//
// exchanges is how many requests of ours the server may know of, those included
// that are over and wait for their streams. An exchange may end only if the others
// account for all streams that are counted, and may still be. Which stream is
// whose does not matter.
type http2 struct {
	client *Client
	raw    *conn
	cc     *http.ClientConn

	mu        sync.Mutex
	exchanges int
	unopened  int  // of them, those whose HEADERS have not been written
	used      bool // something was answered

	changes changes
}

// changes tells that a stream may have closed. It has a lock of its own since
// net/http calls notify from within Reserve.
type changes struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next one; nil: nothing waits
}

func (c *changes) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// wait returns a channel that is closed at the next change.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

type dialledKey struct{}

// newHTTP2Transport returns what makes HTTP/2 connections of dialled ones.
func newHTTP2Transport(cfg Config) *http.Transport {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(dialledKey{}).(net.Conn), nil
		},
		ResponseHeaderTimeout:  cfg.ResponseHeaderTimeout,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxResponseHeaderBytes: int64(cfg.MaxHeaderBytes),
		DisableCompression:     true,
		Protocols:              new(http.Protocols),
	}
	tr.Protocols.SetUnencryptedHTTP2(true) // TLS, if any, is below
	return tr
}

// newHTTP2 makes a connection of stream, with one request reserved.
func newHTTP2(ctx context.Context, c *Client, raw *conn, stream net.Conn) (*http2, error) {
	cc, err := c.h2.NewClientConn(context.WithValue(ctx, dialledKey{}, stream), "http", c.cfg.Address)
	if err != nil {
		return nil, err
	}
	h := &http2{client: c, raw: raw, cc: cc}
	cc.SetStateHook(func(*http.ClientConn) { h.changes.notify() })
	if !h.reserve() {
		return nil, errors.New("the server has closed the connection at once")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.conns[raw]; open {
		c.streams = append(c.streams, h)
	}
	return h, nil
}

// reserve counts a request and reports whether the connection can take it.
func (h *http2) reserve() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cc.Reserve() != nil {
		return false
	}
	h.exchanges++
	h.unopened++
	return true
}

// opened notes that a request's HEADERS have been written, or never will be.
func (h *http2) opened() {
	h.mu.Lock()
	h.unopened--
	h.mu.Unlock()
	h.changes.notify()
}

// own implements exchanger.
func (*http2) own() net.Conn { return nil }

// unused implements exchanger.
func (h *http2) unused() {
	h.cc.Release()
	h.opened()
	h.end()
}

// end returns when the exchange's stream is closed, or the connection.
func (h *http2) end() {
	began := time.Now()
	for {
		changed := h.changes.wait() // before the look: what happens after it is seen
		if h.tryEnd() {
			h.changes.notify()
			if h.client.isLeaving(h) {
				h.closeIfIdle()
			}
			return
		}
		if time.Since(began) > closeTimeout {
			_ = h.raw.Close()
			continue
		}
		again := time.NewTimer(lookInterval)
		select {
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

// tryEnd takes the exchange off the count if no stream needs it.
func (h *http2) tryEnd() bool {
	dead := h.raw.isClosed()
	if !dead && h.cc.Err() != nil {
		dead = true
		_ = h.raw.Close() // net/http is about to
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !dead && h.cc.InFlight() >= h.exchanges-h.unopened {
		return false
	}
	h.exchanges--
	return true
}

// closeIfIdle closes the connection if no request uses it.
func (h *http2) closeIfIdle() {
	h.mu.Lock()
	idle := h.exchanges == 0
	h.mu.Unlock()
	if idle {
		_ = h.cc.Close()
		_ = h.raw.Close()
	}
}
