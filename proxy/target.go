package proxy

import (
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

	mu        sync.Mutex
	upstreams []*upstream
	turn      int // where the next search begins, so that ties spread evenly
}

type upstream struct {
	url      *url.URL
	name     string // host and port, for logs
	proxy    *httputil.ReverseProxy
	lanes    *lanes // nil without admission
	inFlight int    // guarded by target.mu
}

// pick returns the upstream with the fewest requests in flight and counts one
// more for it, in one step, so that two requests never choose by the same count.
func (t *target) pick() *upstream {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := t.upstreams[t.turn]
	for i := 1; i < len(t.upstreams); i++ {
		if u := t.upstreams[(t.turn+i)%len(t.upstreams)]; u.inFlight < best.inFlight {
			best = u
		}
	}
	t.turn = (t.turn + 1) % len(t.upstreams)
	best.inFlight++
	return best
}

func (t *target) done(u *upstream) {
	t.mu.Lock()
	u.inFlight--
	t.mu.Unlock()
}

// closeIdle closes the connections that no request uses.
func (t *target) closeIdle() {
	for _, u := range t.upstreams {
		if tr, ok := u.proxy.Transport.(interface{ CloseIdleConnections() }); ok {
			tr.CloseIdleConnections()
		}
	}
}

// newTarget returns the target of a pool or, if p has no name, of a route
// without one.
func newTarget(p Pool, standing func() uint64, rw *rewriter, logger *stdLog) *target {
	t := &target{Pool: p}
	for _, u := range p.Upstreams {
		to := *u
		if to.Scheme == "h2c" {
			to.Scheme = "http"
		}
		up := &upstream{url: &to, name: to.Host, proxy: &httputil.ReverseProxy{
			Rewrite:        rw.rewrite,
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
		t.upstreams = append(t.upstreams, up)
	}
	return t
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
