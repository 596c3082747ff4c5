package proxy

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/kgate/kgate/proxy/upstream"
)

// schemeUnix is of upstreams that listen on a Unix socket, such as unix:/run/app.sock.
// They speak HTTP/1.1.
const schemeUnix = "unix"

// backend is one upstream: a server that requests are sent to.
type backend struct {
	configured string // the URL in the configuration
	transport  Transport

	url       *url.URL
	name      string // host and port, for logs
	onlyHTTP2 bool   // it takes no upgrades
	client    *upstream.Client
	requests  requester          // client, except in tests
	checks    context.CancelFunc // ends its checks; nil: there are none

	newCheck  func() *upstream.Client // makes the connection of one check
	suspected chan struct{}           // a request has failed: the next check is to come at once

	// Guarded by balancer.mu.
	isAgreed bool // see balancer.agreed
	away     bool // agreed, and nothing may be sent there: see missedLocked
	rank     int  // higher ones are used only when no lower one can be
	weight   int
	since    time.Time // when it came, or came back; zero: with all others
	inFlight int
	health   health
	changed  time.Time // when its health changed last; zero: never
	why      error     // it is unhealthy
	// unanswered of those in flight wait for the header of an answer. It has given none
	// since quiet, or for as long as one has waited.
	unanswered int
	quiet      time.Time
	gaveUp     time.Time // when one ended without an answer last
	answered   time.Time // when it began an answer last; zero: never
}

// share returns u's part of the requests, relative to others of its rank. One that is new,
// or healthy again, has a tenth at first, and the whole after slowStart.
func (u *backend) share(slowStart time.Duration) float64 {
	const least = 0.1
	share := float64(u.weight)
	if slowStart > 0 && !u.since.IsZero() {
		share *= min(1, max(least, float64(time.Since(u.since))/float64(slowStart)))
	}
	return share
}

// suspect has u looked at soon.
func (u *backend) suspect() {
	select {
	case u.suspected <- struct{}{}:
	default: // that has been asked for
	}
}

// requester makes requests to an upstream.
type requester interface {
	Do(req *upstream.Request, caller upstream.Caller) (*upstream.Response, error)
}

func newBackend(u *url.URL, transport Transport, standing func() uint64) *backend {
	to, name := *u, u.Host
	switch u.Scheme {
	case "h2c":
		to.Scheme = "http"
	case schemeUnix:
		to, name = url.URL{Scheme: "http", Host: "localhost"}, u.String()
	}
	client := newClient(u, transport, standing)
	return &backend{
		configured: u.String(), transport: transport,
		url: &to, name: name, onlyHTTP2: u.Scheme == "h2c", client: client, requests: client,
		suspected: make(chan struct{}, 1), newCheck: func() *upstream.Client { return newCheckClient(u, transport) },
	}
}

// newClient returns the connections to one upstream.
func newClient(u *url.URL, cfg Transport, standing func() uint64) *upstream.Client {
	address := addressOf(u)
	var dial func(context.Context) (net.Conn, error)
	if cfg.dialer != nil {
		dial = func(ctx context.Context) (net.Conn, error) { return cfg.dialer.DialContext(ctx, "tcp", address) }
	}
	return upstream.New(upstream.Config{
		Scheme:                u.Scheme,
		Address:               address,
		Dial:                  dial,
		Resolve:               cfg.Resolve,
		TLS:                   cfg.TLS,
		DialTimeout:           cfg.DialTimeout,
		ResponseHeaderTimeout: max(cfg.ResponseHeaderTimeout, 0),
		IdleTimeout:           cfg.IdleTimeout,
		Standing:              standing,
	})
}

// newCheckClient returns the connection of one health check. A kept one would hide that the
// upstream accepts no new ones.
func newCheckClient(u *url.URL, cfg Transport) *upstream.Client {
	cfg.Resolve = -1 // it is used once
	return newClient(u, cfg, nil)
}

// addressOf returns what to dial: host and port, or a path.
func addressOf(u *url.URL) string {
	if u.Scheme == schemeUnix {
		return u.Path
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "h2c": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
