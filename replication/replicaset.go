package replication

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// ReplicaSet holds all replicas that a gateway keeps for one pool, by owner: of members whose
// successor it is, and of lost gateways until their tickets have been taken over. There is at most
// one for each member and each lost gateway that the view knows.
type ReplicaSet struct{ of map[kmutex.Node]*Replica }

// NewReplicaSet returns an empty set.
func NewReplicaSet() *ReplicaSet { return &ReplicaSet{of: make(map[kmutex.Node]*Replica)} }

// Of returns the replica of an owner's table; nil if there is none.
func (r *ReplicaSet) Of(owner kmutex.Node) *Replica { return r.of[owner] }

// Owners returns the owners of the replicas, in ascending order.
func (r *ReplicaSet) Owners() []kmutex.Node {
	out := make([]kmutex.Node, 0, len(r.of))
	for n, mine := range r.of {
		if mine.progress() != (Progress{}) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// Receive takes in a push and returns the acknowledgement. A gateway that keeps its replicas on
// disk sends it once the push is on disk. The caller has made sure that the push comes from its
// owner and that the owner is not lost. After ErrGap the acknowledgement must be sent all the same:
// it tells the owner where to go on. After other errors it must not.
func (r *ReplicaSet) Receive(p *Push) (Ack, error) {
	if err := p.Validate(); err != nil {
		return Ack{}, err
	}
	mine := r.of[p.Owner]
	if mine == nil {
		mine = NewReplica(p.Owner)
		r.of[p.Owner] = mine
	}
	if p.Seq <= mine.seq { // overtaken by a newer push
		return Ack{Seq: p.Seq, Progress: mine.progress()}, nil
	}
	mine.seq = p.Seq
	if p.Retire { // the number stays and holds back older pushes
		mine.have, mine.stage = nil, nil
		return Ack{Seq: p.Seq}, nil
	}
	err := mine.Apply(p.Delta)
	if err != nil && !errors.Is(err, ErrGap) {
		return Ack{}, err
	}
	return Ack{Seq: p.Seq, Progress: mine.progress()}, err
}

// Restore adds a whole table as a replica: one from disk, or the table of a former incarnation of
// this process. It changes nothing if the set has a newer replica.
func (r *ReplicaSet) Restore(whole *Delta) error {
	if !whole.complete() {
		return fmt.Errorf("%w: no whole table of node %d", errInvalid, whole.Owner)
	}
	restored := NewReplica(whole.Owner)
	if err := restored.Apply(whole); err != nil {
		return err
	}
	have := r.of[whole.Owner]
	switch {
	case have == nil:
	case have.Version() >= restored.Version():
		return nil
	default:
		restored.seq = have.seq
	}
	r.of[whole.Owner] = restored
	return nil
}

// Drop drops the replicas of the owners for which missed returns true: their tables may have
// changed unseen.
func (r *ReplicaSet) Drop(missed func(owner kmutex.Node) bool) {
	maps.DeleteFunc(r.of, func(n kmutex.Node, _ *Replica) bool { return missed(n) })
}

// Settled drops the replicas of the lost nodes, whose tickets have been taken over and synced, see
// [Plan].
func (r *ReplicaSet) Settled(lost ...kmutex.Node) {
	for _, n := range lost {
		delete(r.of, n)
	}
}

// absorbed returns the lost nodes whose tickets a living owner of a replica here
// has taken over and synced.
func (r *ReplicaSet) absorbed(living func(kmutex.Node) bool) []kmutex.Node {
	var out []kmutex.Node
	for owner, mine := range r.of {
		if living(owner) && mine.have != nil {
			out = append(out, synced(mine.have.absorbed, mine.synced)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Follow takes in a view. It drops the replicas of owners that the view has forgotten, the replicas
// of lost owners whose tickets a living owner has taken over and synced, and half-transferred tables
// of lost owners. A node newer than newest is a member of a later view.
func (r *ReplicaSet) Follow(member, lost func(kmutex.Node) bool, newest kmutex.Node) {
	r.Settled(r.absorbed(member)...)
	for owner, mine := range r.of {
		switch {
		case member(owner), owner > newest:
		case !lost(owner), mine.have == nil:
			delete(r.of, owner)
		default:
			mine.stage = nil // the rest will not come
		}
		if mine.have != nil {
			mine.have.forget(lost)
		}
	}
}

// left returns the replicas of lost nodes as whole tables, for the report to the pool's home.
func (r *ReplicaSet) left(lost func(kmutex.Node) bool) []*Delta {
	var out []*Delta
	for _, owner := range r.Owners() {
		if !lost(owner) {
			continue
		}
		if d := r.of[owner].Since(0); d != nil {
			out = append(out, d)
		}
	}
	return out
}

// NewReport returns the report of the gateway that has r's table and the replicas c.
func NewReport(r *Replicator, c *ReplicaSet, lost func(kmutex.Node) bool) Report {
	return Report{Node: r.table.Owner(), Absorbed: r.table.Absorbed(), Synced: r.Synced(), Replicas: c.left(lost)}
}
