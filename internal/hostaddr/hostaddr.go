// Package hostaddr says where a gateway listens for others, and at which address they
// reach it, where its configuration does not.
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
	// Alone is in its place for a gateway that no other one is to reach: a free port.
	Alone = "127.0.0.1:0"
)

// Advertised returns the address at which others reach these listeners: the first that one
// of them is bound to, else the one of this host that they most likely reach.
func Advertised(interfaces func() ([]net.Addr, error), listeners ...string) (netip.Addr, error) {
	for _, l := range listeners {
		if addr := BoundTo(l); addr.IsValid() {
			return addr, nil
		}
	}
	addrs, err := interfaces()
	return reachable(addrs), err
}

// Advice says what to do about an error of listening. It is empty if there is nothing to say, and
// begins with a semicolon.
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

// reachable picks the address that other machines most likely reach out of those of this
// host's interfaces: the first private IPv4 one, else the first private IPv6 one, else the
// first global one. It is 127.0.0.1 if there is none, which is enough for a gateway alone.
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
