package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

const (
	copyBufferSize = 32 << 10
	// maxIdlePerUpstream is more than any pool's k is likely to be: a
	// connection that a slot has used is kept for the next one.
	maxIdlePerUpstream = 4096
	// maxResponseHeaderBytes bounds what an upstream can make us store.
	maxResponseHeaderBytes = 1 << 20
)

// target is where a route leads: a pool's upstreams, or those of a route
// without a pool.
type target struct {
	Pool // without a name: no admission
	*group
}

// backend is one upstream: a server that requests are sent to.
type backend struct {
	from      string // the URL in the configuration
	scheme    string // its scheme, which h2c is not any more in url
	transport Transport

	url      *url.URL
	name     string // host and port, for logs
	client   *upstream.Client
	requests requester          // client, but for tests
	checks   context.CancelFunc // ends its checks; nil: there are none

	suspected chan struct{} // a request has failed: the next check is to come at once

	inFlight int // guarded by group.mu
	health   health
}

// newTarget returns the target of a pool or, if p has no name, of a route
// without one. Its upstreams become those of g.
func newTarget(p Pool, g *group, standing func() uint64, logger *slog.Logger) *target {
	upstreams := make([]*backend, len(p.Upstreams))
	for i, u := range p.Upstreams {
		if upstreams[i] = g.same(u.String(), p.Transport); upstreams[i] == nil {
			upstreams[i] = newUpstream(u, p, standing)
		}
	}
	g.replace(upstreams, p, logger)
	return &target{Pool: p, group: g}
}

func newUpstream(u *url.URL, p Pool, standing func() uint64) *backend {
	to := *u
	if to.Scheme == "h2c" {
		to.Scheme = "http"
	}
	if p.Name == "" {
		standing = nil
	}
	client := newClient(u, p.Transport, standing)
	return &backend{
		from: u.String(), scheme: u.Scheme, transport: p.Transport,
		url: &to, name: to.Host, client: client, requests: client,
		suspected: make(chan struct{}, 1),
	}
}

// requester makes requests to an upstream.
type requester interface {
	RoundTrip(req *http.Request, caller upstream.Caller) (*http.Response, error)
}

// newClient returns the connections to one upstream.
func newClient(u *url.URL, cfg Transport, standing func() uint64) *upstream.Client {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "h2c": "80", "https": "443"}[u.Scheme]
	}
	return upstream.New(upstream.Config{
		Scheme:                u.Scheme,
		Address:               net.JoinHostPort(u.Hostname(), port),
		TLS:                   cfg.TLS,
		DialTimeout:           cfg.DialTimeout,
		ResponseHeaderTimeout: max(cfg.ResponseHeaderTimeout, 0),
		IdleTimeout:           cfg.IdleTimeout,
		Standing:              standing,
	})
}

// newTransport returns a transport for one upstream. It differs from
// http.DefaultTransport where a gateway differs from a client: no proxy from
// the environment, no decompression on the way, connections kept for all slots.
func newTransport(scheme string, cfg Transport) *http.Transport {
	dialer := &net.Dialer{Timeout: cfg.DialTimeout, KeepAlive: 30 * time.Second}
	tr := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    cfg.DialTimeout,
		ResponseHeaderTimeout:  max(cfg.ResponseHeaderTimeout, 0),
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxIdleConnsPerHost:    maxIdlePerUpstream,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		DisableCompression:     true,
	}
	switch scheme {
	case "https":
		tr.ForceAttemptHTTP2 = true
		tr.TLSClientConfig = cfg.TLS.Clone()
		if tr.TLSClientConfig == nil {
			tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	case "h2c":
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	return tr
}

// buffers are what answers are copied through.
var buffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}
