package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/peercall"
)

// addressBook knows where raft servers are reached: where the view has them. If one is not found
// there, it is tried where gossip sees it now, so that gateways which all return at other addresses
// find each other; since gossip can be forged, then where raft has it, and again where it was. That
// a gateway gives no good answer is no fault of its address.
type addressBook struct {
	self, at string // this gateway
	servers  func() []raft.Server
	view     func() *View
	alive    atomic.Pointer[map[string]string] // that gossip sees, by name

	mu     sync.Mutex
	failed map[string][]string // where it was not found, by name; the last ones, in that order
}

// note takes in what gossip sees.
func (b *addressBook) note(peers []serfring.Member) {
	addresses := make(map[string]string, len(peers))
	for _, p := range alive(peers) {
		addresses[p.Name] = p.PeerAddr
	}
	b.alive.Store(&addresses)
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.failed, func(name string, _ []string) bool { _, sees := addresses[name]; return !sees })
}

// tried takes in what became of a call to a gateway.
func (b *addressBook) tried(to peercall.To, err error) {
	if errors.Is(err, context.Canceled) { // it says nothing of the address
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	failed := slices.DeleteFunc(b.failed[to.Name], func(addr string) bool { return addr == to.Addr })
	if err != nil && !errors.As(err, new(peercall.Reached)) {
		failed = append(failed, to.Addr)
	}
	b.failed[to.Name] = failed[max(0, len(failed)-3):] // as many as a gateway can have
}

// of returns the address of a server.
func (b *addressBook) of(id raft.ServerID) (string, bool) {
	name := nameOf(id)
	if name == b.self {
		return b.at, true
	}
	var known []string
	if m, in := b.view().Named(name); in && m.Server == string(id) {
		known = append(known, m.PeerAddr)
	}
	if addr, ok := (*b.alive.Load())[name]; ok {
		known = append(known, addr)
	}
	for _, s := range b.servers() {
		if s.ID == id {
			addr, _ := splitAddress(s.Address)
			known = append(known, addr)
		}
	}
	if len(known) == 0 {
		return "", false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.MinFunc(known, func(x, y string) int {
		return cmp.Compare(slices.Index(b.failed[name], x), slices.Index(b.failed[name], y))
	}), true
}

// to returns whom a call to a server is for.
func (b *addressBook) to(server string) (to peercall.To, known bool) {
	id := raft.ServerID(server)
	to.Name = nameOf(id)
	to.Addr, known = b.of(id)
	return to, known
}

var _ raft.ServerAddressProvider = (*addressBook)(nil)

func (b *addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if addr, ok := b.of(id); ok {
		return address(addr, string(id)), nil
	}
	return "", fmt.Errorf("membership: no address of %s", id)
}

// nameOf returns the gateway's name in a server id.
func nameOf(id raft.ServerID) string {
	if at := strings.LastIndexByte(string(id), '/'); at >= 0 {
		id = id[:at]
	}
	return string(id)
}

// address joins a server's address and id: raft's Dial is told no id, and a
// configuration must not have two servers at one address, which an incarnation
// and its successor are for a moment.
func address(addr, server string) raft.ServerAddress {
	return raft.ServerAddress(addr + "|" + server)
}

func splitAddress(a raft.ServerAddress) (addr, server string) {
	addr, server, _ = strings.Cut(string(a), "|")
	return addr, server
}

func alive(peers []serfring.Member) []serfring.Member {
	living := make([]serfring.Member, 0, len(peers))
	for _, p := range peers {
		if p.Status == serfring.StatusAlive {
			living = append(living, p)
		}
	}
	return living
}

func find(peers []serfring.Member, name string) (serfring.Member, bool) {
	i := slices.IndexFunc(peers, func(p serfring.Member) bool { return p.Name == name })
	if i < 0 {
		return serfring.Member{}, false
	}
	return peers[i], true
}
