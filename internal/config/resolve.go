package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// ErrHost is what Resolve wraps when the host does not tell what the
// configuration leaves open.
var ErrHost = errors.New("config: the host does not say")

// Resolve fills in what depends on this host and is not given:
//
//   - node.name: the host name;
//   - node.advertise: the host of listen.peer if that is one address; else, if
//     neither listener is bound to loopback, this machine's first private
//     address, or its first global one; 127.0.0.1 if there is none, which is
//     enough for a gateway alone.
func (c *Config) Resolve() error {
	return c.resolve(os.Hostname, net.InterfaceAddrs)
}

func (c *Config) resolve(hostname func() (string, error), interfaces func() ([]net.Addr, error)) error {
	if c.Node.Name == "" {
		name, err := hostname()
		if err != nil {
			return fmt.Errorf("%w its name: %w; write node.name", ErrHost, err)
		}
		if !isNodeName(name) {
			return fmt.Errorf("%w a usable name, only %s; write node.name, of letters, digits, dots and hyphens", ErrHost, quote(name))
		}
		c.Node.Name = name
	}
	if c.Node.Advertise.IsValid() {
		return nil
	}
	for _, listen := range []string{c.Listen.Peer, c.Listen.Gossip} {
		if addr, ok := boundTo(listen); ok {
			c.Node.Advertise = addr
			return nil
		}
	}
	addrs, err := interfaces()
	if err != nil {
		return fmt.Errorf("%w its addresses: %w; write node.advertise", ErrHost, err)
	}
	c.Node.Advertise = reachable(addrs)
	return nil
}

// boundTo returns the one address that a listener is bound to, if it is.
func boundTo(listen string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.Addr{}, false
	}
	if host == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	addr, err := netip.ParseAddr(host)
	return addr, err == nil && !addr.IsUnspecified()
}

// reachable picks the address that other machines most likely reach.
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
