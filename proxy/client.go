package proxy

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"
)

// clientKey returns who asks, as the pool distinguishes clients.
func (s *snapshot) clientKey(r *http.Request, pool *Pool) string {
	if values := r.Header[http.CanonicalHeaderKey(pool.ClientHeader)]; len(values) > 0 {
		return digest(values)
	}
	return addressKey(s.clientAddr(r))
}

// clientAddr returns the address of a request's client.
func (s *snapshot) clientAddr(r *http.Request) netip.Addr {
	if s.cfg.ClientAddr != nil {
		return s.cfg.ClientAddr(r)
	}
	return clientAddr(r, s.cfg.TrustedProxies)
}

// digest stands for a header's value, which may be long, and a secret.
func digest(values []string) string {
	sum := sha256.Sum256([]byte(strings.Join(values, "\x00")))
	return string(sum[:16])
}

// addressKey is the same for all addresses that are one client's to choose: of
// IPv6, a client with one address has all of its /64.
func addressKey(a netip.Addr) string {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			a = p.Addr()
		}
	}
	return a.String()
}

// clientAddr returns the address of a request's client: that of the connection,
// unless it is a trusted proxy's. Then it is the last that X-Forwarded-For names
// and that is no such proxy: what stands before it, the client may have written.
func clientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr)
	addr := remote.Addr().Unmap().WithZone("")
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := lines[i]; rest != ""; {
			if !containsAddr(trusted, addr) {
				return addr
			}
			last := rest[strings.LastIndexByte(rest, ',')+1:]
			rest = strings.TrimSuffix(rest[:len(rest)-len(last)], ",")
			next, ok := forwardedAddr(strings.TrimSpace(last))
			if !ok {
				return addr
			}
			addr = next
		}
	}
	return addr
}

// forwardedAddr reads an address as X-Forwarded-For has it: some proxies add the
// port.
func forwardedAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = ap.Addr()
	}
	return addr.Unmap().WithZone(""), true
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
