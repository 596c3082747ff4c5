package replication

import (
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Replicator is the owner's side of replication: it decides which push goes to which gateway, and
// up to which version the table is synced.
type Replicator struct {
	table *Table
	// successors have to acknowledge each change. Former successors keep their replicas until
	// the present ones have caught up. Until they have dropped them no further change is synced:
	// after losses such an old replica may be the only one left.
	successors, former map[kmutex.Node]*successor
	synced             uint64
	seq                uint64
	limit              int // of a push, in bytes of JSON
	// greeted are the members known so far. A member that started after this owner may have a
	// replica on disk from the time when it was a successor, under its former number, and is
	// told once that the replica is void.
	greeted map[kmutex.Node]bool
}

// successor is the state of one successor as of its last acknowledgement.
type successor struct {
	Progress
	began       uint64 // version of the table when the transfer of the whole table began
	outstanding uint64 // number of the push that has not been answered; 0: none
	may         bool   // former successor: it may have a replica that would be used
}

// NewReplicator returns the replicator of a table that no successor has yet. A table has one
// replicator for as long as it lives.
func NewReplicator(t *Table) *Replicator {
	return &Replicator{
		table: t, successors: make(map[kmutex.Node]*successor), former: make(map[kmutex.Node]*successor),
		greeted: make(map[kmutex.Node]bool), limit: maxPush,
	}
}

// Follow takes over the successors of a new view. A new successor counts from now on; a gateway
// that is no longer a member does not count.
func (r *Replicator) Follow(successors, members []kmutex.Node) {
	gone := func(n kmutex.Node) bool { return !slices.Contains(members, n) }
	before, restarted := r.successors, false // perhaps
	for _, n := range append(nodes(r.successors), nodes(r.former)...) {
		restarted = restarted || gone(n)
	}
	r.successors = make(map[kmutex.Node]*successor, len(successors))
	for _, n := range successors {
		switch {
		case before[n] != nil:
			r.successors[n] = before[n]
		case r.former[n] != nil:
			r.successors[n] = r.former[n]
		default:
			r.successors[n] = new(successor)
		}
		delete(r.former, n)
		delete(before, n)
	}
	for n, old := range before {
		old.may = true
		r.former[n] = old
	}
	for _, n := range members {
		if n > r.table.Owner() && !r.greeted[n] && r.successors[n] == nil && r.former[n] == nil {
			r.former[n] = &successor{may: restarted}
		}
	}
	maps.DeleteFunc(r.former, func(n kmutex.Node, _ *successor) bool { return gone(n) })
	maps.DeleteFunc(r.greeted, func(n kmutex.Node, _ bool) bool { return gone(n) })
	for _, n := range members {
		r.greeted[n] = true
	}
	r.settle()
}

// Synced returns the version up to which every change is synced. It never goes back: a new
// successor without a replica does not undo what p successors have acknowledged.
func (r *Replicator) Synced() uint64 {
	r.settle() // without successors, nothing else does
	return r.synced
}

// caughtUp reports whether all present successors have every synced change.
func (r *Replicator) caughtUp() bool { return r.acknowledged() >= r.synced }

// Lag returns how many versions each present successor is behind the table.
func (r *Replicator) Lag() map[kmutex.Node]int {
	lag := make(map[kmutex.Node]int, len(r.successors))
	for n, s := range r.successors {
		lag[n] = int(r.table.Version() - s.Version)
	}
	return lag
}

func (r *Replicator) acknowledged() uint64 {
	least := r.table.Version()
	for _, s := range r.successors {
		least = min(least, s.Version)
	}
	return least
}

func (r *Replicator) settle() {
	for _, s := range r.former {
		if s.may {
			return
		}
	}
	r.synced = max(r.synced, r.acknowledged())
}

// Outgoing is a push and its receiver.
type Outgoing struct {
	To   kmutex.Node
	Push *Push
}

// Next returns the pushes to send now: at most one at a time to each gateway, so that changes gather
// while a push is under way. The caller must answer each push with Acked or Failed.
func (r *Replicator) Next() []Outgoing {
	var out []Outgoing
	synced := r.Synced()
	for _, n := range nodes(r.successors) {
		s := r.successors[n]
		if s.outstanding == 0 && (s.Version < r.table.Version() || s.Staged > 0) {
			d := r.table.next(s.Progress, s.began, r.limit)
			if d.Whole && d.From == 0 {
				// Should this push get lost, the transfer before it must not go on.
				s.began, s.Staged = r.table.Version(), 0
			}
			d.Synced = min(synced, d.To)
			out = append(out, r.send(n, s, &Push{Delta: d}))
		}
	}
	if !r.caughtUp() {
		return out
	}
	for _, n := range nodes(r.former) {
		if s := r.former[n]; s.outstanding == 0 {
			s.Progress = Progress{} // should it become a successor again
			out = append(out, r.send(n, s, &Push{Retire: true}))
		}
	}
	return out
}

func (r *Replicator) send(to kmutex.Node, s *successor, p *Push) Outgoing {
	r.seq++
	p.Seq, p.Owner = r.seq, r.table.Owner()
	s.outstanding = p.Seq
	return Outgoing{To: to, Push: p}
}

func nodes(m map[kmutex.Node]*successor) []kmutex.Node {
	out := make([]kmutex.Node, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Acked takes in the answer to a push. Only the answer to the outstanding push counts.
func (r *Replicator) Acked(from kmutex.Node, a Ack) {
	s := r.successor(from)
	if s == nil || s.outstanding != a.Seq {
		return
	}
	s.outstanding, s.Progress = 0, a.Progress
	if s.Version > r.table.Version() { // no correct gateway says so
		s.Progress = Progress{}
	}
	if _, ok := r.former[from]; ok && s.Progress == (Progress{}) {
		delete(r.former, from)
	}
	r.settle()
}

// Failed reports that a push will not be answered. Next returns it again.
func (r *Replicator) Failed(to kmutex.Node, seq uint64) {
	if s := r.successor(to); s != nil && s.outstanding == seq {
		s.outstanding = 0
	}
}

func (r *Replicator) successor(n kmutex.Node) *successor {
	if s := r.successors[n]; s != nil {
		return s
	}
	return r.former[n]
}
