package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"

	"github.com/kgate/kgate/internal/httplist"
)

// rewrite is the Rewrite function of every ReverseProxy: it makes the upstream's
// request of the client's. Hop-by-hop headers, Forwarded and three of
// X-Forwarded-* are already gone from pr.Out.
func rewrite(pr *httputil.ProxyRequest) {
	ex := exchangeOf(pr.In)
	if ex.route.strip != "" {
		stripPrefix(pr.Out.URL, ex.route.strip)
	}
	pr.SetURL(ex.upstream.url)
	// The gateway gives no meaning to the query, so it need not be cleaned of
	// what Go would parse differently, and goes on as it came.
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = pr.In.Host
	// Announced trailers get their values when the body has been read: the
	// outgoing request must see the server's map, not a copy made before.
	pr.Out.Trailer = pr.In.Trailer
	removeUntrusted(pr.Out.Trailer, true)
	if len(pr.Out.Trailer) > 0 {
		// HTTP/2 has them behind a body of known length, too; HTTP/1.1 only
		// behind chunks.
		pr.Out.ContentLength = -1
	}

	trusted := contains(ex.handler.cfg.TrustedProxies, pr.In.RemoteAddr)
	removeUntrusted(pr.Out.Header, trusted)
	if trusted {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	}
	pr.SetXForwarded()
	pr.Out.Header["Forwarded"] = []string{forwarded(pr.In, trusted)}
	if trusted {
		keep(pr, "X-Forwarded-Host")
		keep(pr, "X-Forwarded-Proto")
	}
	if n, ok := maxForwards(pr.In); ok {
		pr.Out.Header["Max-Forwards"] = []string{strconv.FormatUint(n-1, 10)}
	}
	if http10 := !pr.In.ProtoAtLeast(1, 1); http10 || switchesHTTP(pr.Out.Header["Upgrade"]) {
		delete(pr.Out.Header, "Upgrade")
		delete(pr.Out.Header, "Connection")
	}
	delete(pr.Out.Header, "Http2-Settings")
	if t := ex.route.target; t.Fence {
		if fence := ex.hold.slot.Fence(); fence != "" {
			pr.Out.Header["Kgate-Fence"] = []string{fence}
		}
	}
	ex.traceUpstream(pr.Out.Header)
	pr.Out.Header["Via"] = append(pr.Out.Header["Via"], via(pr.In, ex.handler.pseudonym))
}

// switchesHTTP reports whether a request wants to go on in another kind of HTTP:
// then any number of requests would pass behind the one that was admitted, with
// headers that nobody has looked at.
func switchesHTTP(upgrade []string) bool {
	for protocol := range httplist.Elements(upgrade) {
		switch name, _, _ := strings.Cut(strings.ToLower(protocol), "/"); name {
		case "h2c", "h2", "http", "tls":
			return true
		}
	}
	return false
}

func keep(pr *httputil.ProxyRequest, name string) {
	if v := pr.In.Header[name]; len(v) > 0 {
		pr.Out.Header[name] = v
	}
}

func via(r *http.Request, pseudonym string) string {
	switch {
	case r.ProtoMajor == 2:
		return "2.0 " + pseudonym
	case r.ProtoMajor == 1 && r.ProtoMinor == 0:
		return "1.0 " + pseudonym
	default:
		return "1.1 " + pseudonym
	}
}

// removeUntrusted removes Kgate-*, Proxy (which CGI programs take for the address of
// a proxy that they should use) and, unless the client is a trusted proxy,
// what is left of X-Forwarded-*. An underscore is as good as a hyphen to
// upstreams that turn headers into CGI variables.
func removeUntrusted(h http.Header, trusted bool) {
	for name := range h {
		switch {
		case hasNamePrefix(name, "Kgate"), name == "Proxy":
			delete(h, name)
		case !trusted && hasNamePrefix(name, "X-Forwarded"):
			delete(h, name)
		}
	}
}

// hasNamePrefix reports whether name is prefix, a hyphen or underscore and
// more. Canonical form keeps "X_forwarded_for" as it is, hence EqualFold.
func hasNamePrefix(name, prefix string) bool {
	n := len(prefix)
	if len(name) <= n || (name[n] != '-' && name[n] != '_') {
		return false
	}
	if name[0]|0x20 != prefix[0]|0x20 { // most names end here
		return false
	}
	return strings.EqualFold(strings.ReplaceAll(name[:n], "_", "-"), prefix)
}

// contains reports whether the address of remote, host:port, has one of the
// prefixes.
func contains(prefixes []netip.Prefix, remote string) bool {
	if len(prefixes) == 0 {
		return false
	}
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	return containsAddr(prefixes, ap.Addr().Unmap())
}
