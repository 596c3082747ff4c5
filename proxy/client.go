package proxy

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strings"

	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// clientKey returns the key by which the pool tells the request's client from others. Who sends the header
// twice goes by its address: with one more value each time it would be another client each time.
func (v *visit) clientKey(r *http1.Request, pool *Pool) string {
	if values := r.Fields.Values(http.CanonicalHeaderKey(pool.ClientHeader)); len(values) == 1 {
		return pool.ClientKey(values[0])
	}
	return addressKey(v.info.Remote)
}

// clientAddr returns the address of a request's client. Conn is nil if the server is not ours.
func (s *snapshot) clientAddr(ctx context.Context, conn *downstream.Conn, r *http1.Request) netip.Addr {
	switch {
	case s.cfg.ClientAddr != nil:
		return s.cfg.ClientAddr(adapt.ToHTTP(ctx, r, nil))
	case conn != nil:
		return clientAddr(conn.Peer(), r.Fields, s.cfg.TrustedProxies)
	default:
		return clientAddr(downstream.ParseAddr(r.Remote), r.Fields, s.cfg.TrustedProxies)
	}
}

// ClientKey returns the key of the client with that name: a value of the pool's ClientHeader, or an
// address if it has none, or what a program calls itself.
func (p *Pool) ClientKey(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil && p.ClientHeader == "" {
		return addressKey(addr.Unmap())
	}
	if strings.EqualFold(p.ClientHeader, "Authorization") { // "bearer  x" is "Bearer x" (RFC 9110, section 11.4)
		scheme, rest, _ := strings.Cut(name, " ")
		name = strings.TrimRight(strings.ToLower(scheme)+" "+strings.TrimLeft(rest, " "), " ")
	}
	return digest(name)
}

// digest returns a short key for a header's value, which may be long, and secret.
func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return string(sum[:16])
}

// addressKey returns one key for all addresses that a client can choose from: one with an
// IPv6 address has the whole /64.
func addressKey(a netip.Addr) string {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			a = p.Addr()
		}
	}
	return a.String()
}

// clientAddr returns the address of a request's client: addr, the connection's,
// unless it is a trusted proxy's. Then it is the last that X-Forwarded-For names
// and that is no such proxy: what stands before it, the client may have written.
func clientAddr(addr netip.Addr, fields http1.Fields, trusted []netip.Prefix) netip.Addr {
	lines := fields.Values("X-Forwarded-For")
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
// port, or put brackets around one of IPv6.
func forwardedAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
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

// isSecure reports whether the client uses TLS, to the gateway or to a trusted proxy in
// front of it.
func (s *snapshot) isSecure(r *http1.Request) bool {
	if r.Secure {
		return true
	}
	proto := r.Fields.Values("X-Forwarded-Proto")
	if len(proto) == 0 || !contains(s.cfg.TrustedProxies, r.Remote) {
		return false
	}
	first, _, _ := strings.Cut(proto[0], ",")
	first = strings.TrimSpace(first)
	return strings.EqualFold(first, "https") || strings.EqualFold(first, "wss") // as Traefik has it of a WebSocket
}

// contains reports whether the address of remote, host:port, has one of the
// prefixes.
func contains(prefixes []netip.Prefix, remote string) bool {
	if len(prefixes) == 0 {
		return false
	}
	return containsAddr(prefixes, downstream.ParseAddr(remote))
}
