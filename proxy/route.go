package proxy

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

func (r *route) allows(method string) bool {
	return len(r.methods) == 0 || slices.Contains(r.methods, method)
}

// routes are tried in order. A trie would find the longest prefix, not the
// first match, and for the few routes of a gateway a scan is as fast.
type routes []*route

// find returns the first route that matches a request with this method.
func (rs routes) find(req *http.Request, method string) *route {
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
func (rs routes) allow(req *http.Request) string {
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

// hostname returns the host of a Host header in lower case, without its port,
// an IPv6 address's brackets and a final dot.
func hostname(host string) string {
	if strings.Contains(host, ":") { // else it would cost an error per request
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		} else if host[0] == '[' && host[len(host)-1] == ']' {
			host = host[1 : len(host)-1]
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// cutPathPrefix returns what follows prefix in the decoded path, and whether path
// begins with it. Upstreams differ in what they take for the same path; whatever one
// of them may read as prefix does count, lest such a path slip past the route, and
// so past the pool: a run of slashes for one, a backslash for a slash, and segments
// with parameters (";a=b") for those without. An empty path is "/".
func cutPathPrefix(path, prefix string) (rest string, ok bool) {
	if path == "" {
		path = "/"
	}
	i := 0
	for j := range len(prefix) {
		if i < len(path) && path[i] == ';' && prefix[j] != ';' {
			for i < len(path) && !isSlash(path[i]) {
				i++
			}
		}
		switch {
		case i == len(path):
			return "", false
		case prefix[j] == '/' && isSlash(path[i]):
			for i < len(path) && isSlash(path[i]) {
				i++
			}
		case prefix[j] == path[i]:
			i++
		default:
			return "", false
		}
	}
	return path[i:], true
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// hasDotSegment reports whether the decoded path has a segment "." or "..", with
// parameters or without. Clients resolve them before they send (RFC 3986, section
// 5.2.4), so one that arrives here is meant to be read differently by gateway and
// upstream, for example to reach "/files/" through the free route "/free/../files/".
func hasDotSegment(path string) bool {
	for i := 0; i < len(path); i++ {
		if path[i] != '.' || i > 0 && !isSlash(path[i-1]) {
			continue
		}
		end := i + 1
		if end < len(path) && path[end] == '.' {
			end++
		}
		if end == len(path) || isSlash(path[end]) || path[end] == ';' {
			return true
		}
	}
	return false
}

// stripPrefix takes prefix off u's path, in both its forms, if the path begins
// with it.
func stripPrefix(u *url.URL, prefix string) {
	rest, ok := cutPathPrefix(u.Path, prefix)
	if !ok {
		return
	}
	raw := ""
	if u.RawPath != "" {
		// The encoded form can only be cut if the prefix was not encoded;
		// otherwise net/url encodes the rest of the decoded form again.
		if r, ok := cutPathPrefix(u.RawPath, prefix); ok {
			raw = rooted(r)
		}
	}
	u.Path, u.RawPath = rooted(rest), raw
}

func rooted(path string) string {
	if path == "" || path[0] != '/' {
		return "/" + path
	}
	return path
}
