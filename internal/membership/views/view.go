package views

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
)

// Status of a member in a view.
type Status string

// StatusAlive is a member that takes part.
const StatusAlive Status = "alive"

// Member is one incarnation of a gateway.
type Member struct {
	// Node is the index of the log entry that let it in.
	Node kmutex.Node `json:"node"`
	Name string      `json:"name"`
	// PeerAddr is where other gateways reach it, host:port.
	PeerAddr string `json:"peer_addr"`
	// Boot is the random string of this incarnation.
	Boot string `json:"boot"`
	// Server is its id among the raft servers.
	Server string `json:"server"`
	Status Status `json:"status"`
	// Witness members vote and serve nothing: they have no part in any pool.
	Witness bool `json:"witness,omitempty"`
}

// Pool is one critical section with K tokens.
type Pool struct {
	Name string `json:"name"`
	K    int    `json:"k"`
	// Classes share K out to upstreams, nil: the tokens are all alike. Do not write to it.
	Classes []Class `json:"classes,omitempty"`
	// Rate bounds the bytes per second that all gateways together move.
	Rate Rate `json:"rate,omitzero"`
	// Left, if it is not 0, is an upper bound, above K, of the tokens that there can be:
	// K was larger, or is about to be.
	Left int `json:"left,omitempty"`
	// Binding is early or late.
	Binding admission.Binding `json:"binding"`
	// Epoch counts from 1 how often the line was rebuilt.
	Epoch uint64 `json:"epoch"`
	// Began is the index of the log entry that began the epoch: the members
	// with a Node up to it form the line, later ones join it.
	Began uint64 `json:"began"`
	// Spread: the epoch began only to spread the free tokens.
	Spread bool `json:"spread,omitempty"`
	// Home plans this epoch. It is zero only in a
	// view in which nobody serves.
	Home kmutex.Node `json:"home"`
	// Owed lists, in ascending order, the lost members whose tokens are
	// withheld in this epoch.
	Owed []kmutex.Node `json:"owed,omitempty"`
	// Reclaim is lease or hold.
	Reclaim admission.Reclaim `json:"reclaim"`
	// HoldMax with admission.ReclaimHold: how long after the end of the lease Owed ends at the
	// earliest.
	HoldMax time.Duration `json:"hold_max,omitempty"`
	// Tickets is the index of the log entry that let the pool give out tickets
	// through the API: members lost after it may leave some. 0: it never has.
	Tickets uint64 `json:"tickets,omitempty"`
	// TicketTTL is the longest time to live of these tickets; 0: [admission.MaxTTL].
	TicketTTL time.Duration `json:"ticket_ttl,omitempty"`
}

// Rate is in bytes per second; 0: no bound.
type Rate struct {
	// Down is what goes from upstreams to clients, Up the other way.
	Down int64 `json:"down,omitempty"`
	Up   int64 `json:"up,omitempty"`
}

// Parts is what the pool's Rate is divided by: each token carries one part, and there
// are no more tokens than this.
func (p Pool) Parts() int { return max(p.K, p.Left) }

// OwedHolds are the lost members that owe the pool their longest hold, beyond their leases.
func (p Pool) OwedHolds() []kmutex.Node {
	if p.Reclaim != admission.ReclaimHold {
		return nil
	}
	return p.Owed
}

// LongestTTL is the longest time to live of the pool's tickets.
func (p Pool) LongestTTL() time.Duration { return cmp.Or(p.TicketTTL, admission.MaxTTL) }

// maxLost is how many lost members a view remembers.
const maxLost = 4096

// Lost is a member that is gone.
type Lost struct {
	Node kmutex.Node `json:"node"`
	// At is the index of the log entry that took it out.
	At   uint64 `json:"at"`
	Name string `json:"name"`
	// Boot is the incarnation's; it is never let in again.
	Boot string `json:"boot"`
	// Successor is the member that takes over what this one left: the first ring
	// successor of its name at the time. When the successor is lost itself, all that
	// it had goes on to its own successor. 0: nobody is there.
	Successor kmutex.Node `json:"heir"`
	// Leased: its lease may still run, so it may have requests in flight.
	Leased bool `json:"leased"`
	// Witness: it had no part in the pools, so it left nothing.
	Witness bool `json:"witness,omitempty"`
	// Reason says why it was taken out, in words for operators.
	Reason string `json:"reason,omitempty"`
}

// View is what the gateways have agreed on. It never changes; do not write to
// its slices. Number 0 is the empty view that precedes all others.
type View struct {
	Number uint64 `json:"number"`
	// Cluster identifies the cluster; empty until its first leader wrote it.
	Cluster string `json:"cluster"`
	// Lease of every gateway, agreed like a pool's k; 0 until Cluster is known.
	Lease time.Duration `json:"lease"`
	// Founded is when the cluster began, in milliseconds of Unix time. One that
	// starts again, because nobody has kept anything, began later.
	Founded int64 `json:"founded,omitempty"`
	// Members in order of Node: those that may take part.
	Members []Member `json:"members"`
	// Lost are the members that are gone, the oldest loss first. Beyond maxLost
	// the oldest are forgotten.
	Lost []Lost `json:"lost"`
	// Pools in order of name.
	Pools []Pool `json:"pools"`

	ring func() *chordring.Ring // finds it once; nil: each time
}

// first returns the first of all that fits.
func first[T any](all []T, fits func(T) bool) (T, bool) {
	for _, one := range all {
		if fits(one) {
			return one, true
		}
	}
	var none T
	return none, false
}

// Member returns the member with the given node.
func (v *View) Member(node kmutex.Node) (Member, bool) {
	return first(v.Members, func(m Member) bool { return m.Node == node })
}

// Named returns the member with the given name.
func (v *View) Named(name string) (Member, bool) {
	return first(v.Members, func(m Member) bool { return m.Name == name })
}

// LostMember returns what is known of a lost member.
func (v *View) LostMember(node kmutex.Node) (Lost, bool) {
	return first(v.Lost, func(l Lost) bool { return l.Node == node })
}

// Successor returns who answers for what the node has or left: the node itself if
// it is a member, else its successor if there is one.
func (v *View) Successor(node kmutex.Node) (kmutex.Node, bool) {
	if _, in := v.Member(node); in {
		return node, true
	}
	l, known := v.LostMember(node)
	return l.Successor, known && l.Successor != 0
}

// forgotten returns the index of a log entry: the view knows of every loss after it.
func (v *View) forgotten() uint64 {
	if len(v.Lost) < maxLost {
		return 0
	}
	return v.Lost[0].At
}

// LostBoot reports that the named gateway's incarnation is lost.
func (v *View) LostBoot(name, boot string) bool {
	return slices.ContainsFunc(v.Lost, func(l Lost) bool { return l.Name == name && l.Boot == boot })
}

// Newest returns the newest incarnation of the named gateway, whether it is a member or lost.
func (v *View) Newest(name string) (kmutex.Node, bool) {
	if m, in := v.Named(name); in {
		return m.Node, true
	}
	l, known := v.lostNamed(name)
	return l.Node, known
}

// lostNamed returns the newest of the named gateway's lost incarnations.
func (v *View) lostNamed(name string) (Lost, bool) {
	for _, l := range slices.Backward(v.Lost) {
		if l.Name == name {
			return l, true
		}
	}
	return Lost{}, false
}

// Awaits reports that the named gateway was lost, and not stopped in order: it may come back.
func (v *View) Awaits(name string) bool {
	l, lost := v.lostNamed(name)
	return lost && l.Reason != Stopped
}

// Leased returns, in ascending order, the lost members of which it is not
// agreed yet that their leases have run out.
func (v *View) Leased() []kmutex.Node {
	var nodes []kmutex.Node
	for _, l := range v.Lost {
		if l.Leased {
			nodes = append(nodes, l.Node)
		}
	}
	for _, p := range v.Pools {
		if p.Reclaim == admission.ReclaimLease {
			nodes = append(nodes, p.Owed...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Pool returns the pool with the given name.
func (v *View) Pool(name string) (Pool, bool) {
	i, ok := findPool(v.Pools, name)
	if !ok {
		return Pool{}, false
	}
	return v.Pools[i], true
}

// IsHome reports whether a pool's line is formed at the node.
func (v *View) IsHome(node kmutex.Node) bool {
	return slices.ContainsFunc(v.Pools, func(p Pool) bool { return p.Home == node })
}

// Serving returns the members that take part in the pools, in order of Node.
func (v *View) Serving() []Member {
	return slices.DeleteFunc(slices.Clone(v.Members), func(m Member) bool { return m.Witness })
}

// Ring returns the Chord ring of the names of the members that serve.
func (v *View) Ring() *chordring.Ring {
	if v.ring == nil {
		return ringOf(v.Members)
	}
	return v.ring()
}

func ringOf(members []Member) *chordring.Ring {
	var names []string
	for _, m := range members {
		if !m.Witness {
			names = append(names, m.Name)
		}
	}
	return chordring.New(names)
}

func findPool(pools []Pool, name string) (int, bool) {
	return slices.BinarySearchFunc(pools, name, func(p Pool, name string) int {
		return strings.Compare(p.Name, name)
	})
}

// closeTime is how long the connections that a gateway closes at the end of its
// lease may take to be gone.
const closeTime = 150 * time.Millisecond

// Terms are those of the leases in the view.
func (v *View) Terms() lease.Terms { return lease.Terms{Lease: v.Lease, Bound: closeTime} }

// LeaseWait is how long a gateway that has been taken out of the view may go on
// as if it had not, by the clock of any other.
func (v *View) LeaseWait() time.Duration { return lease.Terms{Lease: v.Lease}.Wait() }
