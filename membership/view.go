package membership

import (
	"slices"
	"strings"
	"sync"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/kmutex"
)

// Status of a member in a view.
type Status string

// StatusAlive is a member that takes part.
const StatusAlive Status = "alive"

// The bindings a pool can have.
const (
	BindingEarly = "early"
	BindingLate  = "late"
)

// Member is one incarnation of a gateway.
type Member struct {
	// Node is the index of the log entry that let it in.
	Node kmutex.Node `json:"node"`
	Name string      `json:"name"`
	// PeerAddr is where other gateways reach it, host:port.
	PeerAddr string `json:"peer_addr"`
	// Boot is the random string of the process's start.
	Boot string `json:"boot"`
	// Server is its id among the raft servers.
	Server string `json:"server"`
	Status Status `json:"status"`
}

// Pool is one critical section with K tokens.
type Pool struct {
	Name string `json:"name"`
	K    int    `json:"k"`
	// Binding is BindingEarly or BindingLate.
	Binding string `json:"binding"`
	// Epoch counts from 1 how often the line was formed.
	Epoch uint64 `json:"epoch"`
	// Began is the index of the log entry that began the epoch: the members
	// with a Node up to it form the line, later ones join it.
	Began uint64 `json:"began"`
	// Home leads the forming of the line in this epoch. It is zero only in a
	// view without members.
	Home kmutex.Node `json:"home"`
}

// View is what the gateways have agreed on. It never changes; do not write to
// its slices. Number 0 is the empty view that precedes all others.
type View struct {
	Number uint64
	// Cluster identifies the cluster; empty until its first leader wrote it.
	Cluster string
	// Members in order of Node.
	Members []Member
	// Pools in order of name.
	Pools []Pool

	ringOnce sync.Once
	ring     *chordring.Ring
}

// Member returns the member with the given node.
func (v *View) Member(node kmutex.Node) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Node == node })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// Named returns the member with the given name.
func (v *View) Named(name string) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// Pool returns the pool with the given name.
func (v *View) Pool(name string) (Pool, bool) {
	i, ok := findPool(v.Pools, name)
	if !ok {
		return Pool{}, false
	}
	return v.Pools[i], true
}

// Ring returns the Chord ring of the members' names.
func (v *View) Ring() *chordring.Ring {
	v.ringOnce.Do(func() { v.ring = ringOf(v.Members) })
	return v.ring
}

func ringOf(members []Member) *chordring.Ring {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Name
	}
	return chordring.New(names)
}

func findPool(pools []Pool, name string) (int, bool) {
	return slices.BinarySearchFunc(pools, name, func(p Pool, name string) int {
		return strings.Compare(p.Name, name)
	})
}
