package proxy

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route is a Route made ready: its host split into the cases that are compared
// differently, and its target resolved.
type route struct {
	host       string // exact, lower case; empty: any
	hostSuffix string // ".example.com" of "*.example.com"
	pathPrefix string
	methods    []string
	strip      string
	target     *target
}

func newRoute(cfg Route, t *target) *route {
	r := &route{
		host:       strings.ToLower(cfg.Match.Host),
		pathPrefix: cfg.Match.PathPrefix,
		methods:    cfg.Match.Methods,
		strip:      cfg.StripPrefix,
		target:     t,
	}
	if strings.HasPrefix(r.host, "*.") {
		r.host, r.hostSuffix = "", r.host[1:]
	}
	return r
}

func (r *route) matches(method, host, path string) bool {
	if r.host != "" && r.host != host {
		return false
	}
	if r.hostSuffix != "" && !strings.HasSuffix(host, r.hostSuffix) {
		return false
	}
	if !strings.HasPrefix(path, r.pathPrefix) {
		return false
	}
	return len(r.methods) == 0 || slices.Contains(r.methods, method)
}

// routes are tried in order. A trie would find the longest prefix, not the
// first match, and for the few routes of a gateway a scan is as fast.
type routes []*route

func (rs routes) find(req *http.Request) *route {
	host := hostname(req.Host)
	path := matchPath(req.URL.Path)
	for _, r := range rs {
		if r.matches(req.Method, host, path) {
			return r
		}
	}
	return nil
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

// matchPath returns path with each run of slashes as one. Many upstreams read
// "//files/x" as "/files/x"; without this, such a path would slip past the
// route, and so past the pool, of "/files/".
func matchPath(path string) string {
	if !strings.Contains(path, "//") {
		return path
	}
	b := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] == '/' && len(b) > 0 && b[len(b)-1] == '/' {
			continue
		}
		b = append(b, path[i])
	}
	return string(b)
}

// hasDotSegment reports whether the decoded path has a segment "." or "..".
// Clients resolve them before they send (RFC 3986, section 5.2.4), so one that
// arrives here is meant to be read differently by gateway and upstream, for
// example to reach "/files/" through the free route "/free/../files/".
func hasDotSegment(path string) bool {
	for i := strings.Index(path, "/."); i >= 0; {
		rest := path[i+2:]
		rest = strings.TrimPrefix(rest, ".")
		if rest == "" || rest[0] == '/' || rest[0] == '\\' {
			return true
		}
		next := strings.Index(path[i+1:], "/.")
		if next < 0 {
			return false
		}
		i += 1 + next
	}
	return false
}

// stripPrefix takes prefix off u's path, in both its forms, if the path begins
// with it.
func stripPrefix(u *url.URL, prefix string) {
	rest, ok := strings.CutPrefix(u.Path, prefix)
	if !ok {
		return
	}
	raw := ""
	if u.RawPath != "" {
		// The encoded form can only be cut if the prefix was not encoded;
		// otherwise net/url encodes the rest of the decoded form anew.
		if r, ok := strings.CutPrefix(u.RawPath, prefix); ok {
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
