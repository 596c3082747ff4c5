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

// contentPolicy lets the page load the files embedded in this program, from this address, and
// nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secure sets headers that allow browsers to show a response and to do nothing else with it.
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

// checkHost refuses requests to a loopback address under a foreign name: they come from a page in the
// operator's browser whose name was made to resolve to this address. For other addresses see
// [CheckHost].
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

// CheckHost wraps the handler of [NewHandler] where the names of the address are known. On every TCP
// address it lets pass these names, IP addresses, and names without a dot, which no stranger can
// have, and refuses all others.
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

// onLoopback reports whether r came in on a loopback address, or on an unknown address.
func onLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return !ok || isLoopback(addr.String())
}

func isLoopback(hostPort string) bool {
	ap, err := netip.ParseAddrPort(hostPort)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// isLocalName reports whether a Host header is a name of this machine that needs no DNS server.
func isLocalName(host string) bool {
	host = hostOf(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// crossOrigin detects requests for changes by web pages of other origins.
var crossOrigin = http.NewCrossOriginProtection()

// noCrossOrigin refuses changes by pages of other origins, unless may allows the request; a nil may
// allows none.
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

// authorize accepts changes with one of the tokens, and changes from this machine over a guarded Unix
// socket. Without tokens it accepts all changes from this machine; with tokens it does not, because a
// proxy on this machine may hide its client. Reading is free.
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

// OverGuardedSocket marks r as a request over a Unix socket that only users who may make changes can
// open. A program that serves the handler on its own socket marks the requests itself.
func OverGuardedSocket(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), guardedKey{}, true))
}

// isGuarded reports whether OverGuardedSocket has marked r.
func isGuarded(r *http.Request) bool { return r.Context().Value(guardedKey{}) != nil }

// overUnix reports whether r came over a Unix socket.
func overUnix(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// isOneOf reports whether token is accepted. It compares hashes, so that its time does not reveal
// even the length.
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

// isLocal reports whether a client on this machine made the request itself. A reverse proxy, whose
// own address may be loopback, adds a header that names its client.
func isLocal(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return false
		}
	}
	return isLoopback(r.RemoteAddr) || overUnix(r)
}

// localOnly serves clients on this machine only. It also refuses requests that a page of another site
// makes through a browser on this machine: the page could not read the answer, but the answer costs
// processor time.
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

// isCrossSite reports whether a browser sent r for a web page of another origin.
func isCrossSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site != "same-origin" && site != "none"
	}
	origin := r.Header.Get("Origin")
	_, host, _ := strings.Cut(origin, "://")
	return origin != "" && !strings.EqualFold(host, r.Host)
}
