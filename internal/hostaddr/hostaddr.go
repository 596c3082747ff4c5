// Package hostaddr says at which address other machines reach a listener of this host.
package hostaddr

import (
	"net"
	"net/netip"
)

// BoundTo returns the one address that a listener on host:port is bound to; invalid if it
// is not bound to one, or if listen is not of this form.
func BoundTo(listen string) netip.Addr {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.Addr{}
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// Reachable picks the address that other machines most likely reach out of those of this
// host's interfaces: the first private IPv4 one, else the first private IPv6 one, else the
// first global one. It is 127.0.0.1 if there is none, which is enough for a gateway alone.
func Reachable(addrs []net.Addr) netip.Addr {
	var global netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		addr := p.Addr().Unmap()
		switch {
		case addr.IsPrivate() && addr.Is4():
			return addr
		case addr.IsGlobalUnicast() && (!global.IsValid() || addr.IsPrivate() && !global.IsPrivate()):
			global = addr
		}
	}
	if global.IsValid() {
		return global
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
