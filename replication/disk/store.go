package disk

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Errors.
var (
	// errDisk: the file cannot be read or written. The wrapped error says why, and what to do.
	errDisk = errors.New("disk: tickets")
	// errForeign: the file belongs to another cluster.
	errForeign = fmt.Errorf("%w: of another cluster", journal.ErrForeign)
)

const (
	fileName = "tickets.db"
	// format is the version of the records. 1 was a bbolt file.
	format = 2
)

// table names one stored table.
type table struct {
	Pool  string      `json:"pool"`
	Owner kmutex.Node `json:"owner"`
}

// Change is the changes of one table that are not on disk yet.
type Change struct {
	table
	Delta *replication.Delta `json:"delta,omitempty"` // nil: the table goes
}

// entry is one record of the journal.
type entry struct {
	Cluster string   `json:"cluster"`
	Changes []Change `json:"changes,omitempty"`
	Opened  *opening `json:"opened,omitempty"`
}

// opening identifies one opening of the file. The caller of Open keeps Mark elsewhere, too: if the
// file has another mark at the next opening, it is an old copy.
type opening struct {
	Mark string `json:"mark"`
	// Before is the mark that was kept elsewhere when the file was opened. It still is if the
	// process ended before it could keep Mark.
	Before string `json:"before"`
}

// Store is the file and its tables. It is safe for concurrent use.
type Store struct {
	path    string
	cluster string

	// writing is held during writes; it guards the journal.
	writing sync.Mutex
	journal *journal.Journal

	mu     sync.Mutex
	tables map[table]*replication.Replica
	opened opening
	stale  bool
}

// Open opens or creates the file in dir, for tickets of this cluster. last is the Mark of the
// opening before, which the caller has kept; empty if it has none.
func Open(dir, cluster, last string) (*Store, error) { return open(dir, cluster, last, nil) }

func open(dir, cluster, last string, on journal.FS) (*Store, error) {
	s := &Store{path: filepath.Join(dir, fileName), cluster: cluster, tables: make(map[table]*replication.Replica)}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		s.journal, err = journal.Open(s.path, journal.Options{
			Magic: "kgate tickets  \n", Format: format, Apply: s.load, Whole: s.whole, FS: on,
		})
	}
	if err != nil {
		return nil, s.fail(err)
	}
	s.stale = last != "" && (s.opened.Mark != last && s.opened.Before != last || s.journal.Created())
	now := opening{Mark: rand.Text(), Before: last}
	if s.append(entry{Cluster: cluster, Opened: &now}) == nil { // else the disk is full: the old mark is as good
		s.opened = now
	}
	return s, nil
}

// Created reports whether Open has made the file.
func (s *Store) Created() bool { return s.journal.Created() }

// Stale reports whether Open found another file than the opening before: the file was gone and made
// again, or an old copy was put back. A copy made since the last opening is not noticed.
func (s *Store) Stale() bool { return s.stale }

// Mark returns the identifier of this opening of the file.
func (s *Store) Mark() string { return s.opened.Mark }

// load takes in a record of the file that is opened.
func (s *Store) load(body []byte) error {
	var e entry
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return err
	}
	if e.Cluster != s.cluster {
		return fmt.Errorf("%w: %q, this one is %q", errForeign, e.Cluster, s.cluster)
	}
	if e.Opened != nil {
		s.opened = *e.Opened
	}
	return s.apply(e.Changes)
}

// apply takes changes into memory.
func (s *Store) apply(changes []Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if c.Delta == nil {
			delete(s.tables, c.table)
			continue
		}
		if s.tables[c.table] == nil {
			s.tables[c.table] = replication.NewReplica(c.Owner)
		}
		if err := s.tables[c.table].Apply(c.Delta); err != nil {
			return err
		}
	}
	return nil
}

// all returns all tables, whole. The caller holds mu.
func (s *Store) all() []Change {
	var out []Change
	for t, r := range s.tables {
		out = append(out, Change{t, r.Since(0)})
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Owner, b.Owner)) })
	return out
}

func (s *Store) whole() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(entry{s.cluster, s.all(), &s.opened})
}

// Load returns all tables that are stored, whole, by pool.
func (s *Store) Load() map[string][]*replication.Delta {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string][]*replication.Delta)
	for _, c := range s.all() {
		out[c.Pool] = append(out[c.Pool], c.Delta)
	}
	return out
}

// Pending returns the changes of a pool since the last write. It only reads memory: the caller may
// hold the lock that guards the table and the replicas.
func (s *Store) Pending(pool string, own *replication.Table, replicas *replication.ReplicaSet) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Change
	has := make(map[table]bool)
	add := func(owner kmutex.Node, version uint64, since func(uint64) *replication.Delta) {
		t := table{pool, owner}
		if version == 0 {
			return
		}
		has[t] = true
		var written uint64
		if r := s.tables[t]; r != nil {
			written = r.Version()
		}
		if written != version {
			out = append(out, Change{t, since(written)})
		}
	}
	add(own.Owner(), own.Version(), own.Since)
	for _, owner := range replicas.Owners() {
		r := replicas.Of(owner)
		add(owner, r.Version(), r.Since)
	}
	for _, t := range slices.SortedFunc(maps.Keys(s.tables), func(a, b table) int { return cmp.Compare(a.Owner, b.Owner) }) {
		if t.Pool == pool && !has[t] {
			out = append(out, Change{table: t})
		}
	}
	return out
}

// Write writes changes, of one pool or several. When it returns nil they are on disk. One goroutine
// calls it, with the results of Pending since its last call.
func (s *Store) Write(changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.journal.Recover(); err != nil {
		return s.fail(err)
	}
	err := s.append(entry{Cluster: s.cluster, Changes: changes})
	if err == nil {
		err = s.apply(changes)
	}
	if err == nil {
		err = s.journal.Compact()
	}
	if err != nil {
		return s.fail(err)
	}
	return nil
}

// append puts a record on disk. The caller holds writing.
func (s *Store) append(e entry) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.journal.Append(body)
}

// Close closes the file.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.journal.Close(); err != nil {
		return s.fail(err)
	}
	return nil
}

// fail adds to err the file's path and what to do.
func (s *Store) fail(err error) error {
	remedy := journal.Remedy(err, "the file away: the tickets in it are lost then")
	if errors.Is(err, errForeign) {
		remedy = "; give each gateway a data directory of its own, or move the file away"
	}
	return fmt.Errorf("%w: %s: %w%s", errDisk, s.path, err, remedy)
}
