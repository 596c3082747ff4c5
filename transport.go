package kgate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

// errNoSlot is what Transport returns for a request without a slot.
var errNoSlot = errors.New("kgate: the request has no slot: give it the context of a request that Middleware has admitted, or one of Slot.Context")

// errOtherNode is for a slot that is valid, as far as its own node knows.
var errOtherNode = fmt.Errorf("%w: this Transport's node has no lease; use the Transport of the node that has granted the slot", ErrLost)

// Transport returns a RoundTripper that sends requests only while their slots are valid. It asks
// the node's lease right before each write to a connection: after a pause of the process not a
// byte is sent under a lease that has run out meanwhile. A connection is used under the lease that
// it was made under, and no other.
//
// A request needs a context with a slot; see [FromContext]. The slot's fence is sent as
// the header Kgate-Fence; other headers and trailers Kgate-* are not sent, nor is an Upgrade
// to another kind of HTTP.
//
// A slot serves one request after the other. While one is in flight a second one fails with
// [ErrSlotInUse]. A request is over when RoundTrip has failed, when the response's body was
// read to its end or its Close returns, and when the slot is released or lost: a Read of the
// body then fails with [ErrLost]. The connection of a request that is over serves the next one or is
// closed, and with HTTP/2 its stream has ended: if the server does not confirm that for five
// seconds, the connection is closed with all of its streams. The body of an answer with status
// 101 is the connection: its Close waits up to a second until the server has what was
// written, and the slot's release or loss closes it at once.
//
// The request's body is read and closed on another goroutine. A Read that
// waits there, for a client say, may go on when the request is over.
//
// Of base, or of http.DefaultTransport if base is nil, it takes DialContext, TLSClientConfig,
// Protocols, ResponseHeaderTimeout, IdleConnTimeout, MaxResponseHeaderBytes and DisableKeepAlives;
// the connections are kgate's own. A request fails where base has a Proxy for it, or a Dial, DialTLS or
// DialTLSContext: what is below those cannot be fenced. [Node.Limit] takes any RoundTripper. No
// compression is asked for, and of a httptrace.ClientTrace only Got1xxResponse is called.
func (n *Node) Transport(base *http.Transport) http.RoundTripper {
	return newFenced(base, n.started().Entitled)
}

// newFenced returns a Transport that sends under the lease whose number entitled returns;
// 0: there is none.
func newFenced(base *http.Transport, entitled func() uint64) *fenced {
	if base == nil {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	if base == nil { // the program has replaced it with another type
		base = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	return &fenced{base: base.Clone(), entitled: entitled, clients: make(map[server]*upstream.Client)}
}

type fenced struct {
	base     *http.Transport
	entitled func() uint64

	mu      sync.Mutex
	clients map[server]*upstream.Client
}

// server is where requests go.
type server struct{ scheme, address string }

// RoundTrip implements http.RoundTripper.
func (t *fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	slot := FromContext(r.Context())
	client, err := t.clientFor(r)
	if err == nil {
		err = t.check(slot)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	x := &exchange{slot: slot, returned: make(chan struct{})}
	defer close(x.returned)
	x.ctx, x.cancel = context.WithCancelCause(r.Context())
	out := x.prepare(r)
	if x.leave, err = slot.held.Enter(x.end); err != nil {
		x.breakOff(nil)
		return nil, err
	}
	res, err := x.roundTrip(client, out)
	if err == nil {
		res.Request = r
	}
	return res, err
}

// check returns why nothing may be sent with the slot; nil: it may.
func (t *fenced) check(slot *Slot) error {
	switch {
	case slot == nil:
		return errNoSlot
	case !slot.Valid():
		return ErrLost
	case t.entitled() == 0:
		return errOtherNode
	default:
		return nil
	}
}

// clientFor returns what a request goes over.
func (t *fenced) clientFor(r *http.Request) (*upstream.Client, error) {
	if err := t.mayServe(r); err != nil {
		return nil, err
	}
	to := server{scheme: r.URL.Scheme}
	port := r.URL.Port()
	switch {
	case to.scheme == "https" && port == "":
		port = "443"
	case to.scheme == "https":
	case to.scheme != "http" || r.URL.Hostname() == "":
		return nil, fmt.Errorf("kgate: the request's URL %q is none of http or https with a host", r.URL)
	case port == "":
		port = "80"
	}
	if p := t.base.Protocols; to.scheme == "http" && p != nil && p.UnencryptedHTTP2() && !p.HTTP1() {
		to.scheme = "h2c"
	}
	to.address = net.JoinHostPort(r.URL.Hostname(), port)
	if t.base.DisableKeepAlives || r.Close {
		once := upstream.New(t.config(to))
		once.CloseIdle() // its connection goes with the request
		return once, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	client := t.clients[to]
	if client == nil {
		for other, c := range t.clients { // a program may ask thousands of servers, each once
			if c.Open() == 0 {
				c.CloseIdle() // a request may be about to use it
				delete(t.clients, other)
			}
		}
		client = upstream.New(t.config(to))
		t.clients[to] = client
	}
	return client, nil
}

// mayServe returns an error if base has for the request what cannot be fenced.
func (t *fenced) mayServe(r *http.Request) error {
	const instead = "; use Limit with a transport of your own"
	//lint:ignore SA1019 the caller's
	if t.base.Dial != nil || t.base.DialTLS != nil || t.base.DialTLSContext != nil {
		return errors.New("kgate: below a Dial, DialTLS or DialTLSContext nothing can be fenced: set DialContext" + instead)
	}
	if t.base.Proxy == nil {
		return nil
	}
	to, err := t.base.Proxy(r)
	if err == nil && to != nil {
		err = fmt.Errorf("kgate: what goes over the proxy %s cannot be fenced: set Proxy to nil"+instead, to.Redacted())
	}
	return err
}

// config returns the configuration of the connections to a server.
func (t *fenced) config(to server) upstream.Config {
	cfg := upstream.Config{
		Scheme: to.scheme, Address: to.address, Standing: t.entitled, DialTimeout: 30 * time.Second,
		ResponseHeaderTimeout: t.base.ResponseHeaderTimeout, IdleTimeout: t.base.IdleConnTimeout, MaxHeaderBytes: int(t.base.MaxResponseHeaderBytes),
	}
	if dial := t.base.DialContext; dial != nil {
		cfg.Dial = func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", to.address) }
	}
	if cfg.TLS = t.base.TLSClientConfig.Clone(); cfg.TLS == nil {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if len(cfg.TLS.NextProtos) == 0 { // base has no HTTP/2, or Clone would have noted it
		cfg.TLS.NextProtos = []string{"http/1.1"}
	}
	return cfg
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *fenced) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for to, c := range t.clients {
		c.CloseIdle()
		delete(t.clients, to)
	}
}
