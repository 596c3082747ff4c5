package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Pool is a set of upstreams that share k slots.
type Pool struct {
	// Name as the Admitter knows it.
	Name string
	// Upstreams that serve the pool: those of scheme tcp its TCP connections, the
	// others its requests. Of several healthy ones, the one with the fewest in flight
	// from this gateway is taken, by its weight: http://10.0.1.1#weight=3 has three
	// times as many as one without. A host that begins with an underscore is the name
	// of SRV records. A pool without any upstream can have no route.
	Upstreams []*url.URL
	// Backup upstreams get what no other one can take: each of those is unhealthy, or
	// no connection to it could be made just then.
	Backup []*url.URL
	// Health says when an upstream is passed over.
	Health Health
	// QueueTimeout is the longest wait for admission, 60 s if 0; negative
	// means no limit. A client shortens it with "Prefer: wait=N".
	QueueTimeout time.Duration
	// TellClients distinguishes the pool's clients, for Request.Client: by the value
	// of ClientHeader, for a request that has it, else by the address, IPv6 by the
	// first half of it.
	TellClients  bool
	ClientHeader string
	// HoldMax is the longest that a request keeps its slot, HoldIdle the
	// longest that it keeps it without a byte moving in either direction. Then
	// it is aborted. 0 means no bound.
	HoldMax, HoldIdle time.Duration
	// MinUpload is the lowest rate, in bytes per second, at which a client may send its
	// request's body, measured over HoldIdle, or over 10 s without it. Time in which the
	// upstream takes none of it does not count. 0 means no bound.
	MinUpload int
	// MinDownload is the lowest rate, in bytes per second, at which a client may read the
	// answer, measured over the same time. Time in which there is nothing to read does
	// not count. 0 means no bound.
	MinDownload int
	// RequestRate is the highest rate, in bytes per second, of one request in each
	// direction. 0 means no bound.
	RequestRate int64
	// Fence sends the slot's fence to the upstream, in the header Kgate-Fence.
	Fence bool
	// Tickets lets clients of the pool take a ticket for their request, with
	// "Prefer: kgate-ticket".
	Tickets bool
	// TicketTTL is the longest time to live of the pool's tickets, [MaxTicketTTL] if 0.
	TicketTTL time.Duration
	// Page is shown to a browser whose request has to wait. Nil: the browser waits for
	// its answer without a page.
	Page *Page
	// Transport is how the upstreams are reached.
	Transport Transport
}

// Transport is how upstreams are reached.
type Transport struct {
	// DialTimeout bounds connecting, TLS handshake included; default 5 s.
	DialTimeout time.Duration
	// ResponseHeaderTimeout bounds the time from the last byte of the request
	// to the upstream's response header, default 60 s; negative means no
	// limit.
	ResponseHeaderTimeout time.Duration
	// IdleTimeout is how long a connection is kept that no request uses, default
	// 90 s. An upstream may close it sooner: see package upstream.
	IdleTimeout time.Duration
	// Resolve is how long the addresses of an upstream's name are used, default 30 s.
	// Then the name is looked up again, in the background. Negative: only when a
	// connection is made.
	Resolve time.Duration
	// Host is sent as the requests' Host. Empty: the client's.
	Host string
	// TLS is used for https upstreams; nil means the system's roots.
	TLS *tls.Config
	// ProxyHeader is the version of the PROXY header, 1 or 2, that each connection to a
	// tcp upstream begins with; 0: none.
	ProxyHeader int

	dialer dialer // in place of a net.Dialer, in tests
}

// dialer makes connections.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// A pool's slots are for requests and for TCP connections alike: they wait in one line.
// Upstreams of scheme tcp serve the connections, the others the requests.
const schemeTCP = "tcp"

// serves reports whether the pool has an upstream for TCP connections, or one for
// requests.
func (p *Pool) serves(connections bool) bool {
	return slices.ContainsFunc(p.all(), func(u *url.URL) bool { return u != nil && (u.Scheme == schemeTCP) == connections })
}

// split returns the pool as its requests see it, and as its TCP connections do. There are
// no health checks for these: a failure to connect is what shows that an upstream is down.
func (p Pool) split() (forHTTP, forTCP Pool) {
	forHTTP, forTCP = p, p
	forTCP.Health.Path = ""
	isTCP := func(u *url.URL) bool { return u.Scheme == schemeTCP }
	forHTTP.Upstreams, forTCP.Upstreams = partition(p.Upstreams, isTCP)
	forHTTP.Backup, forTCP.Backup = partition(p.Backup, isTCP)
	return forHTTP, forTCP
}

// partition returns the upstreams that are not of a kind, and those that are.
func partition(all []*url.URL, kind func(*url.URL) bool) (others, these []*url.URL) {
	for _, u := range all {
		if kind(u) {
			these = append(these, u)
		} else {
			others = append(others, u)
		}
	}
	return others, these
}

// all returns the upstreams, the backups last.
func (p *Pool) all() []*url.URL { return slices.Concat(p.Upstreams, p.Backup) }

func (t Transport) withDefaults() Transport {
	t.DialTimeout = cmp.Or(t.DialTimeout, admission.DefaultDialTimeout)
	t.ResponseHeaderTimeout = cmp.Or(t.ResponseHeaderTimeout, admission.DefaultResponseHeaderTimeout)
	t.IdleTimeout = cmp.Or(t.IdleTimeout, admission.DefaultIdleTimeout)
	t.Resolve = cmp.Or(t.Resolve, admission.DefaultResolve)
	return t
}
