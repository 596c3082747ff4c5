package replication

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Progress is the state of a replica.
type Progress struct {
	// Version is the table's version that the replica has; 0: there is no replica.
	Version uint64 `json:"version"`
	// Staged is the version that the transfer of a whole table, which will replace the replica,
	// has reached; 0: no transfer is under way.
	Staged uint64 `json:"staged,omitempty"`
}

// Replica is a successor's copy of one owner's table.
type Replica struct {
	owner  kmutex.Node
	have   *store // nil until a whole table has arrived
	stage  *store // the whole table that is arriving
	synced uint64
	seq    uint64 // of the newest push
}

// NewReplica returns an empty replica.
func NewReplica(owner kmutex.Node) *Replica { return &Replica{owner: owner} }

// Version returns the table's version that the replica has; 0: none.
func (r *Replica) Version() uint64 {
	if r.have == nil {
		return 0
	}
	return r.have.version
}

// progress returns the replica's progress, for the acknowledgement.
func (r *Replica) progress() Progress {
	p := Progress{Version: r.Version()}
	if r.stage != nil {
		p.Staged = r.stage.version
	}
	return p
}

// Records returns the replica's records in order of arrival.
func (r *Replica) Records() []Record {
	if r.have == nil {
		return nil
	}
	return records(maps.Values(r.have.live))
}

// Apply takes in a delta. It returns ErrGap if changes before the delta are missing, and another
// error if the delta is invalid or too large; after an error nothing has changed. Older deltas and
// repetitions are harmless.
func (r *Replica) Apply(d *Delta) error {
	if err := d.Validate(); err != nil {
		return err
	}
	if d.Owner != r.owner {
		return fmt.Errorf("%w: a delta of node %d for a replica of node %d", errInvalid, d.Owner, r.owner)
	}
	if !d.Whole {
		return r.apply(d)
	}
	return r.applyChunk(d)
}

func (r *Replica) apply(d *Delta) error {
	switch {
	case d.From == 0 || d.From > r.Version():
		return fmt.Errorf("%w: node %d, have %d, got %d to %d", ErrGap, r.owner, r.Version(), d.From, d.To)
	case d.To <= r.Version():
		return nil
	case len(r.have.live)+len(d.Put) > maxHeld:
		return fmt.Errorf("%w: in the replica of node %d", errFull, r.owner)
	}
	r.have.take(d)
	r.synced = max(r.synced, d.Synced)
	return nil
}

// applyChunk takes in a chunk of the whole table. The first chunk drops those before it: the owner
// starts over only if it can no longer complete them.
func (r *Replica) applyChunk(d *Delta) error {
	stage := r.stage
	if d.From == 0 {
		stage = newStore()
	}
	switch {
	case d.Last && d.To <= r.Version():
		r.stage = nil // an old transfer
		return nil
	case stage == nil || d.From > stage.version:
		return fmt.Errorf("%w: node %d, staged %d, got %d to %d", ErrGap, r.owner, r.progress().Staged, d.From, d.To)
	case len(stage.live)+len(d.Put) > maxHeld:
		return fmt.Errorf("%w: in the replica of node %d", errFull, r.owner)
	}
	stage.take(d)
	r.stage = stage
	if d.Last {
		stage.forgotten = stage.version
		r.have, r.stage = stage, nil
		r.synced = max(r.synced, d.Synced)
	}
	return nil
}

// Since returns the changes after version in one delta, or the whole replica; nil if it is empty.
// The disk gets a replica in this way and, with version 0, the home of the pool.
func (r *Replica) Since(version uint64) *Delta {
	if r.have == nil {
		return nil
	}
	d := r.have.follow(Progress{Version: version}, 0, maxInt)
	d.Owner, d.Synced = r.owner, min(r.synced, d.To)
	return d
}

// Absorbed returns the lost nodes whose tickets the owner has taken over.
func (r *Replica) Absorbed() []Absorbed {
	if r.have == nil {
		return nil
	}
	return slices.Clone(r.have.absorbed)
}
