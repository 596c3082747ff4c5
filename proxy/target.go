package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

const (
	copyBufferSize = 32 << 10
	// idleConnTimeout of kept upstream connections. An upstream may close them
	// sooner; the transport then retries what may be retried.
	idleConnTimeout = 90 * time.Second
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

// upstream is one server that requests are sent to.
type upstream struct {
	from      string // the URL in the configuration
	scheme    string // its scheme, which h2c is not any more in url
	transport Transport

	url    *url.URL
	name   string // host and port, for logs
	proxy  *httputil.ReverseProxy
	lanes  *lanes             // nil without admission
	checks context.CancelFunc // ends its checks; nil: there are none

	inFlight int // guarded by group.mu
	health   health
}

func (u *upstream) closeIdle() {
	if tr, ok := u.proxy.Transport.(interface{ CloseIdleConnections() }); ok {
		tr.CloseIdleConnections()
	}
}

// newTarget returns the target of a pool or, if p has no name, of a route
// without one. Its upstreams become those of g.
func newTarget(p Pool, g *group, standing func() uint64, logger *stdLog) *target {
	upstreams := make([]*upstream, len(p.Upstreams))
	for i, u := range p.Upstreams {
		if upstreams[i] = g.same(u.String(), p.Transport); upstreams[i] == nil {
			upstreams[i] = newUpstream(u, p, standing, logger)
		}
	}
	g.replace(upstreams, p, logger.logger)
	return &target{Pool: p, group: g}
}

func newUpstream(u *url.URL, p Pool, standing func() uint64, logger *stdLog) *upstream {
	to := *u
	if to.Scheme == "h2c" {
		to.Scheme = "http"
	}
	up := &upstream{scheme: u.Scheme, from: u.String(), transport: p.Transport, url: &to, name: to.Host, proxy: &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ErrorLog:       logger.std(),
		BufferPool:     buffers,
		ModifyResponse: upstreamAnswered,
		ErrorHandler:   upstreamFailed,
	}}
	if p.Name == "" {
		up.proxy.Transport = newTransport(u.Scheme, p.Transport)
	} else {
		up.lanes = &lanes{current: standing, dial: func() *http.Transport { return newTransport(u.Scheme, p.Transport) }}
		up.proxy.Transport = up.lanes
	}
	return up
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
		IdleConnTimeout:        idleConnTimeout,
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

// buffers lends the buffers that answers are copied through.
var buffers = new(bufferPool)

type bufferPool struct{ pool sync.Pool }

var _ httputil.BufferPool = (*bufferPool)(nil)

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[copyBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, copyBufferSize)
}

// Put implements httputil.BufferPool. It stores a pointer to the array, since
// putting a slice into an interface would allocate.
func (p *bufferPool) Put(b []byte) {
	if len(b) == copyBufferSize {
		p.pool.Put((*[copyBufferSize]byte)(b))
	}
}
