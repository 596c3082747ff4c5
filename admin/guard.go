package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// secure sets the headers that keep browsers from doing more with a response
// than showing it.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src '"+styleHash+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses requests to a loopback address under a foreign name: a
// page in the operator's browser whose name was made to point here.
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

// forwarded are the headers that a reverse proxy adds: its own address may be
// loopback, its client's is not.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// localOnly serves clients on this machine and refuses all others.
func localOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		local := isLoopback(r.RemoteAddr)
		for _, name := range forwarded {
			local = local && len(r.Header.Values(name)) == 0
		}
		if !local {
			problem(w, r, http.StatusForbidden, "profiles are for clients on the gateway's own machine")
			return
		}
		next(w, r)
	}
}
