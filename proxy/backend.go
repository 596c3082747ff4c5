package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"

	"github.com/kgate/kgate/proxy/upstream"
)

// backend is one upstream: a server that requests are sent to.
type backend struct {
	configured string // the URL in the configuration
	scheme     string // its scheme; h2c, too, which url writes http
	transport  Transport

	url      *url.URL
	name     string // host and port, for logs
	client   *upstream.Client
	requests requester          // client, but for tests
	checks   context.CancelFunc // ends its checks; nil: there are none

	suspected chan struct{} // a request has failed: the next check is to come at once

	// Guarded by balancer.mu.
	inFlight int
	health   health
}

// requester makes requests to an upstream.
type requester interface {
	RoundTrip(req *http.Request, caller upstream.Caller) (*http.Response, error)
}

func newBackend(u *url.URL, transport Transport, standing func() uint64) *backend {
	to := *u
	if to.Scheme == "h2c" {
		to.Scheme = "http"
	}
	client := newClient(u, transport, standing)
	return &backend{
		configured: u.String(), scheme: u.Scheme, transport: transport,
		url: &to, name: to.Host, client: client, requests: client,
		suspected: make(chan struct{}, 1),
	}
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

// newCheckTransport returns the transport of one upstream's health checks. Each
// makes a connection of its own: one that is kept would hide an upstream that takes
// no new ones.
func newCheckTransport(scheme string, cfg Transport) *http.Transport {
	dialer := &net.Dialer{Timeout: cfg.DialTimeout}
	tr := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: cfg.DialTimeout,
		DisableKeepAlives:   true,
		DisableCompression:  true,

		MaxResponseHeaderBytes: 1 << 20,
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
