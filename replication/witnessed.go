package replication

import (
	"cmp"
	"slices"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/kmutex"
)

// Stay is one incarnation's time in the agreed views.
type Stay struct {
	Name string
	Node kmutex.Node // the index of the log entry that let it in
	Out  uint64      // the index of the log entry that took it out; 0: it is a member
}

// Missed reports whether the replica of owner's table that self's gateway had when it joined, on
// disk or in memory, may lack something that owner has told a ticket's holder: owner was a member
// while that gateway was not. Tables that owner sends later are whole again.
//
// stays has all known lost incarnations of that gateway. Its replicas are from the last incarnation
// that kept any, and its own table with them: kept reports whether there is a table of an
// incarnation. If an incarnation ended before it had dropped the replicas that it missed changes of,
// it left no table, and the replicas are from an earlier one.
func Missed(self, owner Stay, stays []Stay, kept func(kmutex.Node) bool) bool {
	out := uint64(0) // when that incarnation, or an immediate successor of it, was taken out
	for _, s := range slices.SortedFunc(slices.Values(stays), func(a, b Stay) int { return cmp.Compare(a.Node, b.Node) }) {
		if s.Name == self.Name && s.Node < self.Node && (kept(s.Node) || uint64(s.Node) == out) {
			out = s.Out
		}
	}
	return owner.Name != self.Name && out != uint64(self.Node) && (owner.Out == 0 || owner.Out > out)
}

// Witnessed reports whether self, a member, has a replica of everything that lost told any ticket's
// holder, in a pool that has tickets since the log entry tickets. This is so if self was the first
// ring successor of lost in every view that lost can have seen in that time: an owner tells a holder
// nothing before all successors of its present view have it. If self has no replica, lost told no
// holder anything.
//
// stays has all members of that time; more do no harm. Additional names on the ring only put more
// gateways between lost and self, so one ring of all names stands for every view.
func Witnessed(self, lost Stay, tickets uint64, stays []Stay) bool {
	began := max(tickets, uint64(lost.Node))
	if uint64(self.Node) > began {
		return false // lost may have told something before
	}
	names := []string{self.Name, lost.Name}
	for _, s := range stays {
		if uint64(s.Node) < lost.Out && (s.Out == 0 || s.Out > began) {
			names = append(names, s.Name)
		}
	}
	next := chordring.New(names).Successors(lost.Name, 1)
	return len(next) == 1 && next[0] == self.Name
}
