package membership

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
)

// addressBook knows where raft servers are reached. Where gossip sees a server now comes
// before where it was when it was let in, so that gateways which all return at other
// addresses find each other.
type addressBook struct {
	self, at string // this gateway
	servers  func() []raft.Server
	alive    atomic.Pointer[map[string]string] // that gossip sees, by name
}

// note takes in what gossip sees.
func (b *addressBook) note(peers []serfring.Member) {
	addresses := make(map[string]string, len(peers))
	for _, p := range alive(peers) {
		addresses[p.Name] = p.PeerAddr
	}
	b.alive.Store(&addresses)
}

// of returns the address of a server.
func (b *addressBook) of(id raft.ServerID) (string, bool) {
	name := nameOf(id)
	if name == b.self {
		return b.at, true
	}
	if addr, ok := (*b.alive.Load())[name]; ok {
		return addr, true
	}
	for _, s := range b.servers() {
		if s.ID == id {
			addr, _ := splitAddress(s.Address)
			return addr, true
		}
	}
	return "", false
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
	return first(peers, func(p serfring.Member) bool { return p.Name == name })
}
