// Package hostaddr finds the default addresses at which a gateway listens for others and advertises
// itself.
package hostaddr

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// Where a gateway listens for others.
const (
	DefaultPeer = ":7080"
	// Alone is the address for a gateway that no other gateway needs to reach: a free port.
	Alone = "127.0.0.1:0"
)

// Advertised returns the address at which others reach these listeners: the first address that a
// listener is bound to, else the address of this host that others most likely reach.
func Advertised(interfaces func() ([]net.Addr, error), listeners ...string) (netip.Addr, error) {
	for _, l := range listeners {
		if addr := BoundTo(l); addr.IsValid() {
			return addr, nil
		}
	}
	addrs, err := interfaces()
	return reachable(addrs), err
}

// Advice returns advice about an error of listening, beginning with a semicolon; empty if there is
// none.
func Advice(err error) string {
	op := (*net.OpError)(nil)
	if !errors.As(err, &op) || op.Op != "listen" {
		return ""
	}
	for cause, advice := range map[syscall.Errno]string{
		syscall.EADDRINUSE:    "stop the process that has it, or write another address",
		syscall.EACCES:        "ports below 1024 need root or CAP_NET_BIND_SERVICE: write another port, or grant that",
		syscall.EADDRNOTAVAIL: "write an address of this machine",
	} {
		if errors.Is(op, cause) {
			return "; " + advice
		}
	}
	return ""
}

// BoundTo returns the single address that a listener on host:port is bound to; invalid if it is bound
// to all, or if listen is not of this form.
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

// reachable picks the address of this host's interfaces that other machines most likely reach: the
// first private IPv4 address, else the first private IPv6 address, else the first global address. If
// there is none it returns 127.0.0.1, which is enough for a single gateway.
func reachable(addrs []net.Addr) netip.Addr {
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
