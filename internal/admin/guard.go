package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// contentPolicy lets the page have what is embedded in this program, from this
// address, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets the headers that keep browsers from doing more with a response
// than showing it.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses requests to a loopback address under a foreign name: they come from a
// page in the operator's browser whose name was made to resolve to this address. What a program
// serves on other addresses of its own, it knows the names of; see [CheckHost].
func checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(hostKey{}) == nil && onLoopback(r) && !isLocalName(r.Host) {
			problem(w, r, http.StatusMisdirectedRequest, "this address answers only as localhost or under its IP address")
			return
		}
		next.ServeHTTP(w, r)
	})
}

type hostKey struct{}

// CheckHost stands before the handler of [NewHandler] where the names of the address are known, in
// place of checkHost: on every TCP address it lets pass these names, IP addresses, and names
// without a dot, which no stranger can have.
func CheckHost(next http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		single := !strings.ContainsAny(host, ".:[]") // or none: a health check of HTTP/1.0, no browser
		if overUnix(r) || single || isLocalName(r.Host) || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) }) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), hostKey{}, true)))
			return
		}
		problem(w, r, http.StatusMisdirectedRequest, "this address answers under its IP address, a name without a dot, and the names in listen.admin_names")
	})
}

// hostOf returns the host in a Host header, in lower case.
func hostOf(hostPort string) string {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// onLoopback reports whether r came in on a loopback address, or on an unknown
// one.
func onLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return !ok || isLoopback(addr.String())
}

func isLoopback(hostPort string) bool {
	ap, err := netip.ParseAddrPort(hostPort)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// isLocalName reports whether a Host header names this machine in a way that
// no DNS server decides.
func isLocalName(host string) bool {
	host = hostOf(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// crossOrigin finds changes that a web page of another origin asks the visitor's browser
// for.
var crossOrigin = http.NewCrossOriginProtection()

// noCrossOrigin refuses them, unless the page may; nil: none may.
func noCrossOrigin(may func(*http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if crossOrigin.Check(r) != nil && (may == nil || !may(r)) {
				refuseCrossOrigin(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func refuseCrossOrigin(w http.ResponseWriter, r *http.Request) {
	problem(w, r, http.StatusForbidden, "no change is made for a web page of another origin")
}

func noStore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// authorize accepts changes with one of the tokens, and those that come from this machine over a
// Unix socket that is guarded. Without tokens it accepts all from this machine; with tokens it does not, because a proxy on this machine may hide its client. Reading is free.
func authorize(tokens func() []string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			accepted := tokens()
			local := isLocal(r) && (isGuarded(r) || len(accepted) == 0 && (onOwnLoopback(r) || overUnix(r)))
			if r.Method == http.MethodGet || r.Method == http.MethodHead || local {
				next.ServeHTTP(w, r)
				return
			}
			if len(accepted) == 0 {
				problem(w, r, http.StatusForbidden, "changes come from the gateway's own machine, as node.admin_token_file is not set")
				return
			}
			scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			if !strings.EqualFold(scheme, "Bearer") || !isOneOf(strings.TrimSpace(shown), accepted) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="kgate"`)
				problem(w, r, http.StatusUnauthorized, "this needs the admin token, as Authorization: Bearer TOKEN")
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

type guardedKey struct{}

// OverGuardedSocket returns r as a request that came over a Unix socket which only those can open
// who may change things. A program's own socket is not one unless the program says so.
func OverGuardedSocket(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), guardedKey{}, true))
}

// isGuarded reports whether r came over such a socket.
func isGuarded(r *http.Request) bool { return r.Context().Value(guardedKey{}) != nil }

// overUnix reports whether r came over a Unix socket.
func overUnix(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// isOneOf reports whether a token is accepted. It compares hashes, so that not
// even the length shows.
func isOneOf(token string, accepted []string) bool {
	have := sha256.Sum256([]byte(token))
	found := 0
	for _, a := range accepted {
		want := sha256.Sum256([]byte(a))
		found |= subtle.ConstantTimeCompare(have[:], want[:])
	}
	return found == 1
}

// onOwnLoopback reports whether r came in on a loopback address.
func onOwnLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && isLoopback(addr.String())
}

// isLocal reports whether a client on this machine made the request itself. A reverse proxy adds
// a header that says for whom it asks: its own address may be loopback, its client's is not.
func isLocal(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return false
		}
	}
	return isLoopback(r.RemoteAddr) || overUnix(r)
}

// localOnly serves clients on this machine and refuses all others, and pages of other sites that
// have a browser on this machine ask: they cannot read the answer, but it costs processor time.
func localOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isLocal(r):
			problem(w, r, http.StatusForbidden, "profiles are for clients on the gateway's own machine")
		case isCrossSite(r):
			problem(w, r, http.StatusForbidden, "profiles are not for web pages of another origin")
		default:
			next(w, r)
		}
	}
}

// isCrossSite reports whether a web page of another origin has a browser ask.
func isCrossSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site != "same-origin" && site != "none"
	}
	origin := r.Header.Get("Origin")
	_, host, _ := strings.Cut(origin, "://")
	return origin != "" && !strings.EqualFold(host, r.Host)
}
