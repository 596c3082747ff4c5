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
	Out  uint64      // the index of the one that took it out; 0: it is a member
}

// Missed reports whether owner may have told holders of tickets something that self's gateway
// does not know, although it kept a replica of owner's table, on disk or in memory, when it
// joined: owner was a member while that gateway was none. What comes in later from owner is whole again.
// stays has all lost incarnations of that gateway that are known. The replicas are those of the
// last one that kept any: it kept its own table with them, which kept tells. If it ended before it had
// dropped what it had missed itself, they are of one before it.
func Missed(self, owner Stay, stays []Stay, kept func(kmutex.Node) bool) bool {
	out := uint64(0) // when that one was taken out, or those that took its place at once
	for _, s := range slices.SortedFunc(slices.Values(stays), func(a, b Stay) int { return cmp.Compare(a.Node, b.Node) }) {
		if s.Name == self.Name && s.Node < self.Node && (kept(s.Node) || uint64(s.Node) == out) {
			out = s.Out
		}
	}
	return owner.Name != self.Name && out != uint64(self.Node) && (owner.Out == 0 || owner.Out > out)
}

// Witnessed reports whether self, a member, has a replica of whatever lost told the holder of
// any ticket, in a pool that has tickets since the log entry tickets. That is so if self was
// the first ring successor of lost in every view that lost can have seen meanwhile: an owner
// tells nothing before all successors of its present view have it. If self has no replica,
// lost told nothing.
//
// stays has all who were members in that time; others in it do no harm. More names on the
// ring only put more between lost and self, so one ring of all of them stands for every view.
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
