package replication

import (
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// Delta is what changed in a table after version From up to version To.
type Delta struct {
	Owner kmutex.Node `json:"owner"`
	From  uint64      `json:"from"`
	To    uint64      `json:"to"`
	// Whole: the delta is a chunk of the whole table. The first chunk has From 0, each other
	// begins where the one before ends, and they count together, once the Last has arrived. A
	// delta that is not Whole counts by itself.
	Whole bool `json:"whole,omitempty"`
	Last  bool `json:"last,omitempty"`
	// Put and Deleted in order of At, each record at most once.
	Put      []Put      `json:"put,omitempty"`
	Deleted  []Deletion `json:"deleted,omitempty"`
	Absorbed []Absorbed `json:"absorbed,omitempty"`
	// Synced is the version up to which the owner knew its table synced.
	Synced uint64 `json:"synced,omitempty"`
}

// Put is a record and the version that last changed it.
type Put struct {
	At     uint64 `json:"at"`
	Record Record `json:"record"`
}

// Deletion is the end of a ticket.
type Deletion struct {
	At uint64 `json:"at"`
	ID string `json:"id"`
}

// Absorbed says that the table holds all records of a lost node since version At.
type Absorbed struct {
	At   uint64      `json:"at"`
	Node kmutex.Node `json:"node"`
}

// complete reports whether d is a whole table in one piece.
func (d *Delta) complete() bool { return d.Whole && d.From == 0 && d.Last }

// Validate returns why no correct gateway sends d.
func (d *Delta) Validate() error {
	if d.Owner == 0 || d.From > d.To || d.Last && !d.Whole || d.Synced > d.To && (d.Last || !d.Whole) {
		return fmt.Errorf("%w: delta of node %d from %d to %d", errInvalid, d.Owner, d.From, d.To)
	}
	inOrder := order{from: d.From, to: d.To}
	for i := range d.Put {
		if err := d.Put[i].Record.Validate(); err != nil {
			return err
		}
		if err := inOrder.next(d.Put[i].At); err != nil {
			return err
		}
	}
	inOrder = order{from: d.From, to: d.To}
	for _, x := range d.Deleted {
		if _, err := ParseID(x.ID); err != nil {
			return err
		}
		if err := inOrder.next(x.At); err != nil {
			return err
		}
	}
	inOrder = order{from: d.From, to: d.To}
	for _, a := range d.Absorbed {
		if a.Node == 0 || a.Node == d.Owner {
			return fmt.Errorf("%w: node %d has absorbed node %d", errInvalid, d.Owner, a.Node)
		}
		if err := inOrder.next(a.At); err != nil {
			return err
		}
	}
	return nil
}

// order checks that versions ascend and lie in (from, to].
type order struct{ from, to uint64 }

func (o *order) next(at uint64) error {
	if at <= o.from || at > o.to {
		return fmt.Errorf("%w: version %d is not in order", errInvalid, at)
	}
	o.from = at
	return nil
}

// synced returns the nodes that were absorbed up to version.
func synced(absorbed []Absorbed, version uint64) []kmutex.Node {
	var out []kmutex.Node
	for _, a := range absorbed {
		if a.At <= version {
			out = append(out, a.Node)
		}
	}
	return out
}
