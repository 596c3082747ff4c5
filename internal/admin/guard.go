package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
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
// page in the operator's browser whose name was made to resolve to this address.
func checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if onLoopback(r) && !isLocalName(r.Host) {
			problem(w, r, http.StatusMisdirectedRequest, "this address answers only as localhost or under its IP address")
			return
		}
		next.ServeHTTP(w, r)
	})
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
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
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

// authorize accepts changes that come over a Unix socket, which its file guards, and those
// with one of the tokens. Without tokens it accepts changes from this machine; with tokens
// it does not, because a proxy on this machine may hide its client. Reading is free.
func authorize(tokens func() []string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			accepted := tokens()
			if r.Method == http.MethodGet || r.Method == http.MethodHead || overSocket(r) || len(accepted) == 0 && fromLoopback(r) {
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

// overSocket reports whether r came over a Unix socket.
func overSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok && addr != nil
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

// fromLoopback reports whether r came from this machine to a loopback address.
func fromLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && isLoopback(addr.String()) && isLocal(r)
}

// forwarded are the headers that a reverse proxy adds: its own address may be
// loopback, its client's is not.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// isLocal reports whether a client on this machine made the request itself.
func isLocal(r *http.Request) bool {
	for _, name := range forwarded {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	return isLoopback(r.RemoteAddr) || overSocket(r)
}

// localOnly serves clients on this machine and refuses all others.
func localOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			problem(w, r, http.StatusForbidden, "profiles are for clients on the gateway's own machine")
			return
		}
		next(w, r)
	}
}
