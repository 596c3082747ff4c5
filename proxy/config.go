package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/headeredit"
)

// errConfig is wrapped by every error of Config.Validate.
var errConfig = errors.New("invalid configuration")

// Config of a Handler.
type Config struct {
	// Routes in order: the first that matches takes the request.
	Routes []Route
	// TCP leads the connections of listeners for TCP to pools.
	TCP []TCP
	// Pools that the routes and TCP name.
	Pools []Pool
	// Admitter admits requests to pools. Required if any route has a pool.
	Admitter Admitter
	// Observer sees every request; may be nil.
	Observer Observer
	// Tracer makes the spans of sampled requests; nil: none are made, and a
	// request's trace context goes to the upstream as it came.
	Tracer trace.Tracer
	// SampleRatio is the share of requests to sample, 0 to 1. A request that
	// brings a trace context brings the decision with it.
	SampleRatio float64
	// Logger takes errors and the structured access log; nil discards them.
	Logger *slog.Logger
	// AccessLog writes one line per request. Queries are left out: they may
	// hold secrets.
	AccessLog AccessFormat
	// Gateway is this gateway's name, for AccessJSON.
	Gateway string
	// AccessWriter takes the lines of AccessJSON, each whole with one
	// Write. It must be safe for concurrent use, as an *os.File is.
	AccessWriter io.Writer
	// TrustedProxies are the peers whose X-Forwarded-* headers are passed on, and whose
	// X-Forwarded-For names the client. From all other requests these headers are
	// removed.
	TrustedProxies []netip.Prefix
	// ClientAddr returns the address of a request's client, to tell clients apart and
	// to show who waits. Nil: the address is found as TrustedProxies says.
	ClientAddr func(*http.Request) netip.Addr
	// Standing identifies the right of this gateway to have requests in flight:
	// 0 while it has none, and a new number each time it has won the right
	// again. Slots that were given under one standing are lost with it. It is
	// asked before each write to a pool's upstream: a connection sends nothing
	// under another standing than the one it was made under. It must be fast
	// and safe for concurrent use. Nil: the right is never lost.
	Standing func() uint64
	// Bar is called with the upstreams that cannot be reached from here, of those that have a k
	// of their own, each time that they are others: see [Handler.Agree]. A request that could
	// not be sent waits again only after that. Nil: nobody wants to know.
	Bar func(pool string, upstreams []string)
	// Draining reports whether the gateway is being taken out of service: clients are
	// then told to go to another one. It must be fast; nil: it never is.
	Draining func() bool
	// Edge is how the gateway meets its clients.
	Edge Edge
	// Tickets serves requests that bring a ticket or want one; nil: none do.
	Tickets Tickets
	// TicketHandler answers below /.kgate/tickets, which no route ever gets; it
	// sees the whole path. Nil: 404.
	TicketHandler http.Handler
}

// Match selects requests. Empty fields match everything.
type Match struct {
	// Host is compared with the request's host without port and regardless of
	// case. "*.example.com" matches every name below example.com.
	Host string
	// PathPrefix is compared with the beginning of the decoded path, where
	// runs of slashes count as one, and case matters.
	PathPrefix string
	// Methods of which one must match, in capitals.
	Methods []string
}

// Route sends matching requests to a pool, or past admission.
type Route struct {
	// Pool that admits the route's requests. Empty: no admission.
	Pool  string
	Match Match
	// StripPrefix is taken off the path before it goes to the upstream, where a segment
	// ends with it: /a off /a/b, not off /ab.
	StripPrefix string
	// RequestHeaders change the header of a request as the upstream gets it,
	// ResponseHeaders the header of the upstream's answer, not of the gateway's own answers.
	// Informational answers (1xx) pass as they are, except 101.
	RequestHeaders, ResponseHeaders HeaderEdits
	// CORS lets web pages read the gateway's own answers.
	CORS CORS
	// ErrorPages are shown in place of those of the Edge for the same statuses.
	ErrorPages []*ErrorPage
	// Access says which clients are served, of those that the Edge serves. Others take no
	// place in line. The ticket API does not look at it, so a route of a pool with tickets
	// must not have it.
	Access Access
	// Upstreams and Transport of a route without a pool; a route with a pool
	// uses the pool's.
	Upstreams []*url.URL
	Transport Transport
}

const (
	defaultRateWindow = 10 * time.Second
)

func (c Config) withDefaults() Config {
	c.Pools = slices.Clone(c.Pools)
	for i := range c.Pools {
		c.Pools[i].QueueTimeout = cmp.Or(c.Pools[i].QueueTimeout, admission.DefaultQueueTimeout)
		c.Pools[i].Transport = c.Pools[i].Transport.withDefaults()
		c.Pools[i].Health = c.Pools[i].Health.withDefaults()
	}
	c.Routes = slices.Clone(c.Routes)
	for i := range c.Routes {
		c.Routes[i].Transport = c.Routes[i].Transport.withDefaults()
	}
	if c.Standing == nil {
		c.Standing = func() uint64 { return 1 }
	}
	c.Edge.WaitingHeaderBytes = cmp.Or(c.Edge.WaitingHeaderBytes, 32<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports everything that is wrong with c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", errConfig, fmt.Sprintf(format, args...)))
	}
	if !(c.SampleRatio >= 0 && c.SampleRatio <= 1) {
		bad("sample ratio %v is not between 0 and 1", c.SampleRatio)
	}
	if c.AccessLog == AccessJSON && c.AccessWriter == nil {
		bad("an access log in this form needs an AccessWriter")
	}
	if err := c.Edge.check(); err != nil {
		bad("%v", err)
	}
	pools := make(map[string]*Pool, len(c.Pools))
	for i, p := range c.Pools {
		switch {
		case p.Name == "":
			bad("pool %d has no name", i)
		case pools[p.Name] != nil:
			bad("pool %q is given twice", p.Name)
		}
		pools[p.Name] = &p
		for _, msg := range checkUpstreams(p.all(), poolSchemes...) {
			bad("pool %q: %s", p.Name, msg)
		}
		if p.Transport.DialTimeout < 0 || p.Transport.IdleTimeout < 0 {
			bad("pool %q: negative timeout of a connection", p.Name)
		}
		for _, msg := range p.Health.check() {
			bad("pool %q: %s", p.Name, msg)
		}
		if p.HoldMax < 0 || p.HoldIdle < 0 || p.MinUpload < 0 || p.MinDownload < 0 || p.RequestRate < 0 {
			bad("pool %q: negative bound on the hold", p.Name)
		}
		if p.Tickets && c.Tickets == nil {
			bad("pool %q has tickets, but Config.Tickets is nil", p.Name)
		}
		if longest := cmp.Or(p.TicketTTL, MaxTicketTTL); p.Page != nil && p.Page.keep > longest {
			bad("pool %q: its page keeps places for %v, and its tickets live for %v at most: set a longer TicketTTL", p.Name, p.Page.keep, longest)
		}
		if p.Page != nil && c.Tickets == nil {
			bad("pool %q has a waiting page, but Config.Tickets, which keeps the places, is nil", p.Name)
		}
	}
	for i, r := range c.Routes {
		for _, msg := range r.check(pools) {
			bad("route %d: %s", i, msg)
		}
		if r.Pool != "" && c.Admitter == nil {
			bad("route %d has a pool, but there is no Admitter", i)
		}
	}
	listeners := make(map[string]bool, len(c.TCP))
	for _, t := range c.TCP {
		for _, msg := range t.check(pools) {
			bad("listener %q: %s", t.Listener, msg)
		}
		if listeners[t.Listener] {
			bad("listener %q is given twice", t.Listener)
		}
		if c.Admitter == nil {
			bad("listener %q has a pool, but there is no Admitter", t.Listener)
		}
		listeners[t.Listener] = true
	}
	return errors.Join(errs...)
}

func (r Route) check(pools map[string]*Pool) []string {
	var msgs []string
	switch {
	case r.Pool == "" && len(r.Upstreams) == 0:
		msgs = append(msgs, "no upstream")
	case r.Pool == "":
		msgs = append(msgs, checkUpstreams(r.Upstreams, routeSchemes...)...)
		if r.Transport.DialTimeout < 0 || r.Transport.IdleTimeout < 0 {
			msgs = append(msgs, "negative timeout of a connection")
		}
	case pools[r.Pool] == nil:
		msgs = append(msgs, fmt.Sprintf("there is no pool %q", r.Pool))
	case !pools[r.Pool].serves(false):
		msgs = append(msgs, fmt.Sprintf("pool %q has no upstream for requests", r.Pool))
	case len(r.Upstreams) > 0:
		msgs = append(msgs, "a route with a pool uses the pool's upstreams")
	}
	if p := r.Match.PathPrefix; p != "" && p[0] != '/' {
		msgs = append(msgs, fmt.Sprintf("path prefix %q does not begin with a slash", p))
	}
	if p := r.StripPrefix; p != "" && p[0] != '/' {
		msgs = append(msgs, fmt.Sprintf("strip prefix %q does not begin with a slash", p))
	}
	if err := r.RequestHeaders.check(headeredit.CheckRequest); err != nil {
		msgs = append(msgs, "request headers: "+err.Error())
	}
	if err := r.ResponseHeaders.check(headeredit.CheckAnswer); err != nil {
		msgs = append(msgs, "response headers: "+err.Error())
	}
	if err := r.CORS.check(); err != nil {
		msgs = append(msgs, "cors: "+err.Error())
	}
	if p := pools[r.Pool]; p != nil && p.Tickets && r.Access.limits() {
		msgs = append(msgs, fmt.Sprintf("the route limits its clients, but everybody may get tickets of pool %q", r.Pool))
	}
	if slices.Contains(r.Match.Methods, http.MethodConnect) {
		msgs = append(msgs, "CONNECT cannot be proxied to an upstream")
	}
	for _, method := range r.Match.Methods {
		if !isCapitals(method) {
			msgs = append(msgs, fmt.Sprintf("the method %q is not in capitals: no request has it", method))
		}
	}
	return msgs
}

// The schemes of upstreams, and of those of a pool.
var (
	routeSchemes = []string{"http", "https", "h2c", schemeUnix}
	poolSchemes  = append(slices.Clone(routeSchemes), schemeTCP)
)

// CheckServer returns an error unless u means one server, with nothing behind the URL.
func CheckServer(u *url.URL) error {
	msgs := checkUpstreams([]*url.URL{u}, poolSchemes...)
	if isService(u) {
		msgs = append(msgs, fmt.Sprintf("%q is the name of SRV records, which may be any number of servers", u.Host))
	}
	if u.Fragment != "" {
		msgs = append(msgs, "the URL ends with #")
	}
	if len(msgs) == 0 {
		return nil
	}
	return errors.New(msgs[0])
}

func checkUpstreams(us []*url.URL, schemes ...string) []string {
	var msgs []string
	for _, u := range us {
		switch {
		case u == nil:
			msgs = append(msgs, "an upstream is nil")
		case !slices.Contains(schemes, u.Scheme):
			msgs = append(msgs, fmt.Sprintf("the scheme of upstream %q is none of %s", u.Redacted(), strings.Join(schemes, ", ")))
		case u.Scheme == schemeUnix && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		case u.Host == "":
			msgs = append(msgs, fmt.Sprintf("upstream %q has no host", u.Redacted()))
		case u.User != nil:
			msgs = append(msgs, fmt.Sprintf("upstream %q carries user information, which would not be sent", u.Redacted()))
		case isService(u) && u.Port() != "":
			msgs = append(msgs, fmt.Sprintf("upstream %q is the name of SRV records, which have the port: leave it out", u.Redacted()))
		case u.Scheme == schemeTCP && (u.Port() == "" && !isService(u) || u.Path != ""):
			msgs = append(msgs, fmt.Sprintf("upstream %q is not of the form tcp://host:port", u.Redacted()))
		case strings.Contains(u.String(), "?"):
			msgs = append(msgs, fmt.Sprintf("upstream %q has a query", u.Redacted()))
		}
		if u == nil {
			continue
		}
		if _, err := weightOf(u); err != nil && admission.UpstreamK(u)+admission.UpstreamKEach(u) == 0 {
			msgs = append(msgs, fmt.Sprintf("upstream %q: %v", u.Redacted(), err))
		}
	}
	return msgs
}
