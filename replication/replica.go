package replication

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Progress is how far a replica has come.
type Progress struct {
	// Version that the replica has; 0: none, there is no replica.
	Version uint64 `json:"version"`
	// Staged is how far the transfer of the whole table has come that will
	// replace it; 0: none is under way.
	Staged uint64 `json:"staged,omitempty"`
}

// Replica is what a successor has of one owner's table.
type Replica struct {
	owner  kmutex.Node
	have   *store // nil until a whole table is there
	stage  *store // the whole table that is coming in
	synced uint64
	seq    uint64 // of the newest push
}

// NewReplica returns a replica that has nothing yet.
func NewReplica(owner kmutex.Node) *Replica { return &Replica{owner: owner} }

// Version that the replica has; 0: none.
func (c *Replica) Version() uint64 {
	if c.have == nil {
		return 0
	}
	return c.have.version
}

// progress of the replica, for the acknowledgement.
func (c *Replica) progress() Progress {
	p := Progress{Version: c.Version()}
	if c.stage != nil {
		p.Staged = c.stage.version
	}
	return p
}

// Records of the version that the replica has, in order of arrival.
func (c *Replica) Records() []Record {
	if c.have == nil {
		return nil
	}
	return records(maps.Values(c.have.live))
}

// Apply takes in a delta. It fails with ErrGap when changes before it are
// missing, and with errInvalid; then nothing has changed. Older deltas and
// repetitions are harmless.
func (c *Replica) Apply(d *Delta) error {
	if err := d.Validate(); err != nil {
		return err
	}
	if d.Owner != c.owner {
		return fmt.Errorf("%w: a delta of node %d for a replica of node %d", errInvalid, d.Owner, c.owner)
	}
	if !d.Whole {
		return c.apply(d)
	}
	return c.applyChunk(d)
}

func (c *Replica) apply(d *Delta) error {
	switch {
	case d.From == 0 || d.From > c.Version():
		return fmt.Errorf("%w: node %d, have %d, got %d to %d", ErrGap, c.owner, c.Version(), d.From, d.To)
	case d.To <= c.Version():
		return nil
	case len(c.have.live)+len(d.Put) > maxHeld:
		return fmt.Errorf("%w: in the replica of node %d", errFull, c.owner)
	}
	c.have.take(d)
	c.synced = max(c.synced, d.Synced)
	return nil
}

// applyChunk takes in a part of the whole table. The first part starts over:
// the owner only starts over when the rest can no longer be had.
func (c *Replica) applyChunk(d *Delta) error {
	stage := c.stage
	if d.From == 0 {
		stage = newStore()
	}
	switch {
	case d.Last && d.To <= c.Version():
		c.stage = nil // an old transfer
		return nil
	case stage == nil || d.From > stage.version:
		return fmt.Errorf("%w: node %d, staged %d, got %d to %d", ErrGap, c.owner, c.progress().Staged, d.From, d.To)
	case len(stage.live)+len(d.Put) > maxHeld:
		return fmt.Errorf("%w: in the replica of node %d", errFull, c.owner)
	}
	stage.take(d)
	c.stage = stage
	if d.Last {
		stage.forgotten = stage.version
		c.have, c.stage = stage, nil
		c.synced = max(c.synced, d.Synced)
	}
	return nil
}

// Since returns the changes after a version in one delta, or the whole replica; nil
// if there is none. It is how a replica goes to disk and, with version 0, to the
// home of the pool.
func (c *Replica) Since(version uint64) *Delta {
	if c.have == nil {
		return nil
	}
	d := c.have.follow(Progress{Version: version}, 0, maxInt)
	d.Owner, d.Synced = c.owner, min(c.synced, d.To)
	return d
}

// Absorbed returns the lost nodes whose tickets the owner has taken over.
func (c *Replica) Absorbed() []Absorbed {
	if c.have == nil {
		return nil
	}
	return slices.Clone(c.have.absorbed)
}
