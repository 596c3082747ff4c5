package membership

import (
	"fmt"
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

// ServerAddr implements raft.ServerAddressProvider.
func (b *addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if addr, ok := b.of(id); ok {
		return address(addr, string(id)), nil
	}
	return "", fmt.Errorf("membership: no address of %s", id)
}
