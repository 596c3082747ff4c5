package replication

import (
	"cmp"
	"slices"

	"github.com/kgate/kgate/kmutex"
)

// maxTombstones bounds the deletions that are remembered. A replica that is further behind gets the
// whole table.
const maxTombstones = 16_384

// store is one state of a table with enough of its past to tell the changes since a version. The
// owner's table and its replicas are both stores.
type store struct {
	version uint64
	live    map[string]Put
	dead    map[string]uint64 // deleted ids, by the version that deleted them
	// log has the version and id of each change, in order; an entry counts only while it is the
	// version of its id in live or dead.
	log       []Deletion
	forgotten uint64 // deletions up to this version are not remembered
	memory    int    // how many deletions are remembered
	absorbed  []Absorbed
}

func newStore() *store {
	return &store{live: make(map[string]Put), dead: make(map[string]uint64), memory: maxTombstones}
}

// put and remove take the store to the version at.
func (s *store) put(at uint64, r Record) {
	delete(s.dead, r.ID)
	s.live[r.ID] = Put{At: at, Record: r}
	s.note(at, r.ID)
}

func (s *store) remove(at uint64, id string) {
	delete(s.live, id)
	s.dead[id] = at
	s.note(at, id)
}

func (s *store) absorb(a Absorbed) {
	s.absorbed = append(s.absorbed, a)
	s.version = max(s.version, a.At)
}

func (s *store) has(n kmutex.Node) bool {
	return slices.ContainsFunc(s.absorbed, func(a Absorbed) bool { return a.Node == n })
}

func (s *store) note(at uint64, id string) {
	s.version = max(s.version, at)
	s.log = append(s.log, Deletion{At: at, ID: id})
	if len(s.log) > s.memory+2*(len(s.live)+min(len(s.dead), s.memory)) {
		s.compact()
	}
}

// counts reports whether a log entry is the newest of its id.
func (s *store) counts(c Deletion) bool {
	return s.live[c.ID].At == c.At || s.dead[c.ID] == c.At
}

// compact drops superseded log entries and the oldest tombstones.
func (s *store) compact() {
	excess := len(s.dead) - s.memory
	s.log = slices.DeleteFunc(s.log, func(c Deletion) bool {
		if !s.counts(c) {
			return true
		}
		if s.dead[c.ID] != c.At || excess <= 0 {
			return false
		}
		excess--
		delete(s.dead, c.ID)
		s.forgotten = c.At
		return true
	})
}

// since returns the changes after version from, up to limit bytes of JSON, and whether these are
// all.
func (s *store) since(from uint64, limit int) (d *Delta, all bool) {
	d = &Delta{From: from, To: s.version}
	first, _ := slices.BinarySearchFunc(s.log, from+1, func(c Deletion, at uint64) int {
		return cmp.Compare(c.At, at)
	})
	limit -= deltaSize + absorbedSize*len(s.absorbed)
	for _, c := range s.log[first:] {
		put, living := s.live[c.ID]
		if !s.counts(c) || !living && from == 0 { // an empty replica has nothing to delete
			continue
		}
		limit -= changeSize(&put.Record)
		if limit < 0 && len(d.Put)+len(d.Deleted) > 0 {
			d.To = c.At - 1
			break
		}
		if living {
			d.Put = append(d.Put, put)
		} else {
			d.Deleted = append(d.Deleted, c)
		}
	}
	for _, a := range s.absorbed {
		if a.At > from && a.At <= d.To {
			d.Absorbed = append(d.Absorbed, a)
		}
	}
	return d, d.To == s.version
}

// follow returns the next delta for a replica with progress p. A transfer of the whole table that
// began at version began goes on, unless a deletion since then is forgotten.
func (s *store) follow(p Progress, began uint64, limit int) *Delta {
	if p.Staged > 0 && p.Staged <= s.version && began >= s.forgotten {
		return s.chunk(p.Staged, limit)
	}
	if p.Version > 0 && p.Version >= s.forgotten && p.Version <= s.version {
		if d, all := s.since(p.Version, limit); all {
			return d
		}
	}
	return s.chunk(0, limit)
}

func (s *store) chunk(from uint64, limit int) *Delta {
	d, all := s.since(from, limit)
	d.Whole, d.Last = true, all
	return d
}

// take applies the changes of d that are newer than the store.
func (s *store) take(d *Delta) {
	had := s.version
	// Puts and deletions have to enter the log in their common order.
	puts, deleted := d.Put, d.Deleted
	for len(puts)+len(deleted) > 0 {
		if len(deleted) == 0 || len(puts) > 0 && puts[0].At < deleted[0].At {
			if puts[0].At > had {
				s.put(puts[0].At, puts[0].Record)
			}
			puts = puts[1:]
			continue
		}
		if deleted[0].At > had {
			s.remove(deleted[0].At, deleted[0].ID)
		}
		deleted = deleted[1:]
	}
	for _, a := range d.Absorbed {
		if a.At > had {
			s.absorb(a)
		}
	}
	s.version = max(s.version, d.To)
}

// Upper bounds of the size in JSON of a delta and its parts, in bytes.
const (
	deltaSize    = 256
	absorbedSize = 64
	recordSize   = 450
)

func changeSize(r *Record) int {
	return recordSize + 6*len(r.Note) // \u00XX for each byte, at worst
}
