package config

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/kgate/kgate/internal/headeredit"
)

func (v *validator) pools(pools []Pool) {
	if len(pools) == 0 {
		v.wrong(keyPools, "there is no pool", "write at least one, or give --upstream and --k")
	}
	firstOf := map[string]int{}
	for i, p := range pools {
		key := fmt.Sprintf("%s[%d]", keyPools, i)
		v.pool(key, p)
		if p.Name == "" {
			continue
		}
		if other, taken := firstOf[p.Name]; taken {
			v.wrong(key+".name", fmt.Sprintf("%s is the name of %s[%d], too", quote(p.Name), keyPools, other), "give every pool a name of its own")
			continue
		}
		firstOf[p.Name] = i
	}
}

func (v *validator) routes(routes []Route, pools []Pool) {
	if i := slices.IndexFunc(pools, func(p Pool) bool { return p.serves(false) }); len(routes) == 0 && len(pools) > 1 && i >= 0 {
		v.wrong(keyPools, "there are several, and no route to any", "write routes, which say what goes to which pool, such as {pool: "+pools[i].Name+", match: {path_prefix: /}}")
	}
	catchAll := -1
	for i, r := range routes {
		key := fmt.Sprintf("%s[%d]", keyRoutes, i)
		if catchAll >= 0 {
			v.wrong(key, fmt.Sprintf("is never reached: %s[%d] matches every request", keyRoutes, catchAll), "move that one to the end")
			catchAll = math.MinInt
		}
		if catchAll == -1 && r.Match.all() && !v.src.broken(key+".match") {
			catchAll = i
		}
		v.route(key, r, pools)
	}
}

func (v *validator) route(key string, r Route, pools []Pool) {
	v.upstreams(key+".upstreams", r.Upstreams)
	for i, u := range r.Upstreams {
		at := fmt.Sprintf("%s.upstreams[%d]", key, i)
		switch {
		case u == nil:
		case u.Scheme == schemeTCP:
			v.wrong(at, "TCP connections need a pool", "write the upstream under a pool, and listen.tcp: [{addr: ADDRESS, pool: NAME}]")
		case isK(u.Fragment):
			v.wrong(at, "has a k, and no pool", "write the upstream under a pool, and pool: NAME here")
		}
	}
	if r.Pool == "" {
		if len(r.Upstreams) == 0 {
			v.wrong(key+".upstreams", "the route has neither a pool nor upstreams", "write the pool's name, or upstreams to proxy to without admission")
		}
	} else {
		v.poolOf(key, r, pools)
	}
	v.match(key+".match", r.Match)
	v.cors(key+".cors", r.CORS)
	v.errorPages(key+"."+keyErrorPages, r.ErrorPages)
	v.headers(key+".request_headers", r.RequestHeaders, headeredit.CheckRequest)
	v.headers(key+".response_headers", r.ResponseHeaders, headeredit.CheckAnswer)
	v.strip(key+".strip_prefix", r.StripPrefix, r.Match.PathPrefix)
}

// strip checks that every path that matches has the prefix to strip, and that
// the cut falls between two segments.
func (v *validator) strip(key, strip, match string) {
	switch {
	case strip == "":
	case !strings.HasPrefix(strip, "/"):
		v.wrong(key, quote(strip)+" does not begin with /", "write "+quote("/"+strip))
	case !strings.HasPrefix(match, strip):
		v.wrong(key, "match.path_prefix does not begin with "+quote(strip)+": some paths would not have it", "write match: {path_prefix: "+clip(strip)+"}, or strip less")
	case !strings.HasPrefix(match[len(strip):], "/") && !strings.HasSuffix(strip, "/") && match != strip:
		v.wrong(key, quote(strip)+" ends within a segment of match.path_prefix", "write whole segments of "+quote(match))
	}
}

func (v *validator) poolOf(key string, r Route, pools []Pool) {
	if len(r.Upstreams) > 0 {
		v.wrong(key+".upstreams", "a route to a pool has no upstreams of its own", "write them under the pool, or remove pool")
	}
	p := v.findPool(key+".pool", r.Pool, pools)
	at := fmt.Sprintf("%s[%d].upstreams", keyPools, slices.IndexFunc(pools, func(p Pool) bool { return p.Name == r.Pool }))
	if p != nil && p.Tickets {
		for part, networks := range map[string][]netip.Prefix{".allow": r.Allow, ".deny": r.Deny} {
			if len(networks) > 0 {
				v.wrong(key+part, "does not protect the tickets of pool "+quote(r.Pool), "write listen"+part+", or tickets: false under the pool")
			}
		}
	}
	switch {
	case p == nil, p.serves(false), v.src.broken(at):
	case len(p.Upstreams) == 0:
		v.wrong(at, "there is no upstream, and a route leads to the pool", `write where the requests go, such as ["http://127.0.0.1:9000"], or remove the route`)
	default:
		v.wrong(key+".pool", "pool "+quote(r.Pool)+" has tcp upstreams only, which serve no requests", "write an http upstream under the pool, or remove the route")
	}
}

// findPool returns the pool that a key names; nil, and complains, if there is none.
func (v *validator) findPool(key, name string, pools []Pool) *Pool {
	names := make([]string, 0, len(pools))
	for i, p := range pools {
		if p.Name == name {
			return &pools[i]
		}
		if v.src.broken(fmt.Sprintf("%s[%d].name", keyPools, i)) {
			return nil // perhaps it is this one
		}
		names = append(names, p.Name)
	}
	if !v.src.broken(keyPools) {
		v.wrong(key, "there is no pool "+quote(name), didYouMean(name, names, "the pools are"))
	}
	return nil
}

var knownMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodOptions, http.MethodTrace,
}

func (v *validator) match(key string, m Match) {
	if host := strings.TrimPrefix(m.Host, "*."); m.Host != "" && !isHost(host) {
		v.wrong(key+".host", quote(m.Host)+" is not a host name", "write the name only, without scheme, port and path, such as files.example.com")
	}
	if m.PathPrefix != "" && !strings.HasPrefix(m.PathPrefix, "/") {
		v.wrong(key+".path_prefix", quote(m.PathPrefix)+" does not begin with /", "write "+quote("/"+m.PathPrefix))
	}
	for i, method := range m.Methods {
		at := fmt.Sprintf("%s.methods[%d]", key, i)
		upper := strings.ToUpper(method)
		switch {
		case slices.Contains(m.Methods[:i], method):
			v.wrong(at, quote(method)+" is listed twice", "keep one of the two")
		case upper == http.MethodConnect:
			v.wrong(at, "CONNECT cannot be proxied to an upstream", "remove it")
		case slices.Contains(knownMethods, method):
		case slices.Contains(knownMethods, upper):
			v.wrong(at, quote(method)+" is not in capitals, as methods are", "write "+upper)
		case near(upper) != "":
			v.wrong(at, quote(method)+" is not a method", "did you mean "+near(upper)+"?")
		case !isMethod(method):
			v.wrong(at, quote(method)+" is not a method", "write a method such as GET")
		}
	}
}

// near returns the known method that differs from s in one letter.
func near(s string) string {
	if m := Nearest(s, knownMethods); m != "" && editDistance(s, m) == 1 {
		return m
	}
	return ""
}

// isMethod reports whether s can be a method: extensions such as PROPFIND are
// none of the known ones.
func isMethod(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}
