package replication

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// Table has all tickets of one pool at the gateway that answers for them. An empty table has
// version 1: a replica of version 0 is none.
type Table struct {
	owner kmutex.Node
	*store
}

// NewTable returns the empty table of a new incarnation.
func NewTable(owner kmutex.Node) *Table {
	t := &Table{owner: owner, store: newStore()}
	t.version = 1
	return t
}

// Owner returns the incarnation whose table this is.
func (t *Table) Owner() kmutex.Node { return t.owner }

// Version returns the number of changes so far, plus 1.
func (t *Table) Version() uint64 { return t.version }

// Len returns the number of tickets.
func (t *Table) Len() int { return len(t.live) }

// Get returns a ticket's record.
func (t *Table) Get(id string) (Record, bool) {
	p, ok := t.live[id]
	return p.Record, ok
}

// Records returns all records in order of arrival.
func (t *Table) Records() []Record { return records(maps.Values(t.live)) }

func records(puts iter.Seq[Put]) []Record {
	var out []Record
	for p := range puts {
		out = append(out, p.Record)
	}
	slices.SortFunc(out, compareArrival)
	return out
}

// Put adds a ticket or changes its record, and returns the version that has to be synced before the
// holder may be told. It fails if the table is full or r is invalid; then nothing has changed.
func (t *Table) Put(r Record) (version uint64, err error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	if had, ok := t.live[r.ID]; ok {
		if had.Record == r {
			return had.At, nil
		}
	} else if len(t.live) >= MaxRecords {
		return 0, fmt.Errorf("%w: %d", errFull, len(t.live))
	}
	t.put(t.version+1, r)
	return t.version, nil
}

// Delete ends a ticket and reports whether the table had it.
func (t *Table) Delete(id string) bool {
	if _, ok := t.live[id]; !ok {
		return false
	}
	t.remove(t.version+1, id)
	return true
}

// Absorb takes over a lost gateway's tickets, as [PlanHandOvers] planned it. The successor may
// answer for them once the returned version is synced. To absorb the same gateway again changes
// nothing.
func (t *Table) Absorb(b HandOver) (version uint64, err error) {
	if err := b.Validate(); err != nil {
		return 0, err
	}
	if b.Successor != t.owner || b.Owner == t.owner {
		return 0, fmt.Errorf("%w: the hand-over from node %d to node %d at node %d", errInvalid, b.Owner, b.Successor, t.owner)
	}
	if i := slices.IndexFunc(t.absorbed, func(a Absorbed) bool { return a.Node == b.Owner }); i >= 0 {
		return t.absorbed[i].At, nil
	}
	if len(t.live)+len(b.Records) > maxHeld {
		return 0, fmt.Errorf("%w: %d, and %d that node %d left", errFull, len(t.live), len(b.Records), b.Owner)
	}
	for _, r := range b.Records {
		if _, ok := t.live[r.ID]; !ok {
			t.put(t.version+1, r)
		}
	}
	for _, n := range append(slices.Clone(b.Absorbed), b.Owner) {
		if !t.has(n) && n != t.owner {
			t.absorb(Absorbed{At: t.version + 1, Node: n})
		}
	}
	return t.version, nil
}

// Absorbed returns the lost nodes whose tickets have been taken over, in order of version.
func (t *Table) Absorbed() []Absorbed { return slices.Clone(t.absorbed) }

// Forget drops absorbed nodes that the cluster itself has forgotten, so that the list does not grow
// for ever. lost reports whether the cluster still lists a node as lost.
func (t *Table) Forget(lost func(kmutex.Node) bool) { t.forget(lost) }

func (s *store) forget(lost func(kmutex.Node) bool) {
	s.absorbed = slices.DeleteFunc(s.absorbed, func(a Absorbed) bool { return !lost(a.Node) })
}

// Since returns the changes after version in one delta, or the whole table if its history does not
// reach back so far. The disk gets the table in this way.
func (t *Table) Since(version uint64) *Delta { return t.next(Progress{Version: version}, 0, maxInt) }

const maxInt = int(^uint(0) >> 1)

func (t *Table) next(p Progress, began uint64, limit int) *Delta {
	d := t.follow(p, began, limit)
	d.Owner = t.owner
	return d
}
