package downstream

import (
	"net"
	"net/netip"
)

// addrOf returns an address without its port and the zone of IPv6; invalid if it is not TCP's.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// ParseAddr returns the address in host:port, without the zone of IPv6; invalid if there is
// none.
func ParseAddr(hostport string) netip.Addr {
	ap, _ := netip.ParseAddrPort(hostport)
	return ap.Addr().Unmap().WithZone("")
}
