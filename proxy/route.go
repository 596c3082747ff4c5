package proxy

import (
	"slices"
	"strings"

	"github.com/kgate/kgate/proxy/http1"
)

// route is a Route made ready: its host split into the cases that are compared
// differently, and where it leads.
type route struct {
	host       string // exact, lower case; empty: any
	hostSuffix string // ".example.com" of "*.example.com"
	pathPrefix string
	methods    []string
	strip      string
	pool       *Pool // nil: no admission
	balancer   *balancer

	request, answer *headerEdits // nil: none
	access          Access
	cors            CORS
	errorPages      []*ErrorPage
}

func newRoute(cfg Route, pool *Pool, b *balancer) *route {
	r := &route{
		host:       strings.ToLower(cfg.Match.Host),
		pathPrefix: cfg.Match.PathPrefix,
		methods:    cfg.Match.Methods,
		strip:      cfg.StripPrefix,
		pool:       pool,
		balancer:   b,
		request:    newHeaderEdits(cfg.RequestHeaders),
		answer:     newHeaderEdits(cfg.ResponseHeaders),
		access:     cfg.Access,
		cors:       cfg.CORS,
		errorPages: cfg.ErrorPages,
	}
	if strings.HasPrefix(r.host, "*.") {
		r.host, r.hostSuffix = "", r.host[1:]
	}
	return r
}

// matches reports whether the route takes requests for host and path, whatever
// their method.
func (r *route) matches(host, path string) bool {
	if r.host != "" && r.host != host {
		return false
	}
	if r.hostSuffix != "" && !strings.HasSuffix(host, r.hostSuffix) {
		return false
	}
	_, ok := cutPathPrefix(path, r.pathPrefix)
	return ok
}

// hasTickets reports whether clients may have tickets of the route's pool.
func (r *route) hasTickets() bool { return r.pool != nil && r.pool.Tickets }

func (r *route) allows(method string) bool {
	return len(r.methods) == 0 || slices.Contains(r.methods, method)
}

// routes are tried in order. A trie would find the longest prefix, not the
// first match, and for the few routes of a gateway a scan is as fast.
type routes []*route

// find returns the first route that matches a request with this method.
func (rs routes) find(req *http1.Request, method string) *route {
	host := hostname(req.Host)
	for _, r := range rs {
		if r.matches(host, req.URL.Path) && r.allows(method) {
			return r
		}
	}
	return nil
}

// allow returns, for the header Allow, the methods for which a route would match;
// empty if none does, or all do.
func (rs routes) allow(req *http1.Request) string {
	host := hostname(req.Host)
	var methods []string
	for _, r := range rs {
		if !r.matches(host, req.URL.Path) {
			continue
		}
		if len(r.methods) == 0 {
			return ""
		}
		methods = append(methods, r.methods...)
	}
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ", ")
}
