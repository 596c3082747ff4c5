package upstream

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// A kept connection would stay at its address for as long as there are requests, even if
// the server's name has moved. So the name is looked up again, and connections to addresses
// that it no longer has carry no further request.

// lookUpTimeout bounds one look-up.
const lookUpTimeout = 5 * time.Second

// addresses of a server that is known by name. They are guarded by Client.mu.
type addresses struct {
	name    string // empty: the server is known by address
	began   time.Time
	running bool
	known   []netip.Addr // nil: not known, so any address will do
}

// newAddresses returns the addresses of the server at host:port before the first look-up.
func newAddresses(address string) addresses {
	host, _, _ := net.SplitHostPort(address)
	if _, err := netip.ParseAddr(host); err == nil {
		return addresses{}
	}
	return addresses{name: host}
}

// followLocked starts a look-up of the name in the background if the last one is too old.
func (c *Client) followLocked() {
	a := &c.addrs
	if a.name == "" || a.running || c.cfg.Resolve <= 0 || time.Since(a.began) < c.cfg.Resolve {
		return
	}
	a.began, a.running = time.Now(), true
	go c.lookUp(net.DefaultResolver, a.name)
}

// lookUp looks up the addresses of the name. If that fails, the known ones stay.
func (c *Client) lookUp(in *net.Resolver, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), lookUpTimeout)
	defer cancel()
	found, err := in.LookupNetIP(ctx, "ip", name)
	for i := range found {
		found[i] = found[i].Unmap().WithZone("")
	}
	c.mu.Lock()
	c.addrs.running = false
	if err == nil && len(found) > 0 {
		c.addrs.known = found
	}
	var moved []*http1Conn
	c.idle = slices.DeleteFunc(c.idle, func(h *http1Conn) bool {
		if c.movedLocked(h.raw) {
			moved = append(moved, h)
			return true
		}
		return false
	})
	streams := slices.DeleteFunc(slices.Clone(c.streams), func(h *http2) bool { return !c.movedLocked(h.raw) })
	c.mu.Unlock()
	for _, h := range moved {
		h.hangUp()
	}
	for _, h := range streams {
		h.leave()
	}
}

// movedLocked reports whether the server's name no longer has the address that raw is
// connected to.
func (c *Client) movedLocked(raw *conn) bool {
	if c.addrs.known == nil {
		return false
	}
	remote, err := netip.ParseAddrPort(raw.RemoteAddr().String())
	return err == nil && !slices.Contains(c.addrs.known, remote.Addr().Unmap().WithZone(""))
}
