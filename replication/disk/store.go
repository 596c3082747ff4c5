package disk

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Errors.
var (
	// ErrDisk: the file cannot be read or written. What it wraps says why, and
	// what to do.
	ErrDisk = errors.New("disk: tickets")
	// ErrNewer: a newer version of kgate has written the file.
	ErrNewer = errors.New("written by a newer version")
	// ErrForeign: the file belongs to another cluster.
	ErrForeign = errors.New("of another cluster")
)

const (
	fileName = "tickets.db"
	// format is the version of the file.
	format = 1
)

var (
	bucketMeta   = []byte("meta")
	bucketTables = []byte("tables") // pool -> owner -> table
	bucketLive   = []byte("records")
	keyHead      = []byte("head")
)

// meta says to whom the file belongs.
type meta struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
}

// head is a stored table without its records.
type head struct {
	Version  uint64                 `json:"version"`
	Absorbed []replication.Absorbed `json:"absorbed,omitempty"`
}

// table names one stored table.
type table struct {
	pool  string
	owner kmutex.Node
}

// Store is the file. It is safe for concurrent use.
type Store struct {
	db   *bbolt.DB
	path string

	mu      sync.Mutex
	written map[table]uint64 // versions
}

// Open opens or creates the file in dir, for tickets of this cluster.
func Open(dir, cluster string) (*Store, error) {
	s := &Store{path: filepath.Join(dir, fileName), written: make(map[table]uint64)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, s.fail(err)
	}
	err := protected(func() (err error) {
		if s.db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{Timeout: time.Second}); err != nil {
			return err
		}
		if err := s.begin(cluster); err != nil {
			return errors.Join(err, s.db.Close())
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(err)
	}
	return s, nil
}

// readTime is how long a good file may take to be read.
const readTime = 10 * time.Second

// protected does what reads a file that may be damaged: bbolt then panics, reads behind
// its end or never comes back. Its file cannot even be closed after that, so the process
// should end.
func protected(do func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- errDamaged(fmt.Errorf("%v", p))
			}
		}()
		debug.SetPanicOnFault(true) // of this goroutine
		done <- do()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(readTime):
		return errDamaged(fmt.Errorf("not read after %v", readTime))
	}
}

// begin checks whose file it is, and makes a new one this cluster's.
func (s *Store) begin(cluster string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketMeta); b != nil {
			var have meta
			if err := json.Unmarshal(b.Get(bucketMeta), &have); err != nil {
				return errDamaged(err)
			}
			switch {
			case have.Format > format:
				return fmt.Errorf("%w: format %d, this one knows %d", ErrNewer, have.Format, format)
			case have.Cluster != cluster:
				return fmt.Errorf("%w: %q, this one is %q", ErrForeign, have.Cluster, cluster)
			}
			return s.readVersions(tx)
		}
		b, err := tx.CreateBucket(bucketMeta)
		if err != nil {
			return err
		}
		data, err := json.Marshal(meta{Format: format, Cluster: cluster})
		if err != nil {
			return err
		}
		if err := b.Put(bucketMeta, data); err != nil {
			return err
		}
		_, err = tx.CreateBucket(bucketTables)
		return err
	})
}

func (s *Store) readVersions(tx *bbolt.Tx) error {
	return each(tx, func(t table, b *bbolt.Bucket) error {
		h, err := readHead(b)
		s.written[t] = h.Version
		return err
	})
}

// each visits all stored tables.
func each(tx *bbolt.Tx, visit func(table, *bbolt.Bucket) error) error {
	tables := tx.Bucket(bucketTables)
	if tables == nil {
		return errDamaged(errors.New("no tables"))
	}
	return tables.ForEachBucket(func(pool []byte) error {
		owners := tables.Bucket(pool)
		return owners.ForEachBucket(func(owner []byte) error {
			if len(owner) != 8 {
				return errDamaged(fmt.Errorf("owner %x", owner))
			}
			return visit(table{string(pool), kmutex.Node(binary.BigEndian.Uint64(owner))}, owners.Bucket(owner))
		})
	})
}

func readHead(b *bbolt.Bucket) (h head, err error) {
	if err := json.Unmarshal(b.Get(keyHead), &h); err != nil {
		return h, errDamaged(err)
	}
	if b.Bucket(bucketLive) == nil {
		return h, errDamaged(errors.New("a table without records"))
	}
	return h, nil
}

// Load returns all tables that are stored, whole, by pool.
func (s *Store) Load() (map[string][]*replication.Delta, error) {
	out := make(map[string][]*replication.Delta)
	err := protected(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return each(tx, func(t table, b *bbolt.Bucket) error {
				d, err := load(t.owner, b)
				out[t.pool] = append(out[t.pool], d)
				return err
			})
		})
	})
	if err != nil {
		return nil, s.fail(err)
	}
	return out, nil
}

func load(owner kmutex.Node, b *bbolt.Bucket) (*replication.Delta, error) {
	h, err := readHead(b)
	if err != nil {
		return nil, err
	}
	d := &replication.Delta{Owner: owner, To: h.Version, Whole: true, Last: true, Absorbed: h.Absorbed}
	err = b.Bucket(bucketLive).ForEach(func(_, data []byte) error {
		var p replication.Put
		if err := json.Unmarshal(data, &p); err != nil {
			return errDamaged(err)
		}
		d.Put = append(d.Put, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(d.Put, func(a, b replication.Put) int { return cmp.Compare(a.At, b.At) })
	if err := d.Validate(); err != nil {
		return nil, errDamaged(err)
	}
	return d, nil
}

// Change is what one table on disk lacks.
type Change struct {
	table
	delta *replication.Delta // nil: the table goes
}

// Pending returns what has changed of a pool since the last write. It only reads
// memory: whoever guards the table and the replicas may hold a lock meanwhile.
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
		if s.written[t] != version {
			out = append(out, Change{table: t, delta: since(s.written[t])})
		}
	}
	add(own.Owner(), own.Version(), own.Since)
	for _, owner := range replicas.Owners() {
		c := replicas.Of(owner)
		add(owner, c.Version(), c.Since)
	}
	for _, t := range slices.SortedFunc(maps.Keys(s.written), func(a, b table) int { return cmp.Compare(a.owner, b.owner) }) {
		if t.pool == pool && !has[t] {
			out = append(out, Change{table: t})
		}
	}
	return out
}

// Write writes changes, those of several pools in one go. When it has returned
// without an error they are on disk. It is called by one goroutine, with what
// Pending returned since its last call.
func (s *Store) Write(changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range changes {
			if err := write(tx, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if c.delta == nil {
			delete(s.written, c.table)
		} else {
			s.written[c.table] = c.delta.To
		}
	}
	return nil
}

func write(tx *bbolt.Tx, c Change) error {
	owners, err := tx.Bucket(bucketTables).CreateBucketIfNotExists([]byte(c.pool))
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(nil, uint64(c.owner))
	if c.delta == nil || c.delta.Whole {
		if err := owners.DeleteBucket(key); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
			return err
		}
	}
	if c.delta == nil {
		return nil
	}
	b, err := owners.CreateBucketIfNotExists(key)
	if err != nil {
		return err
	}
	live, err := b.CreateBucketIfNotExists(bucketLive)
	if err != nil {
		return err
	}
	if err := apply(live, c.delta); err != nil {
		return err
	}
	h := head{Version: c.delta.To, Absorbed: c.delta.Absorbed}
	if !c.delta.Whole {
		before, err := readHead(b)
		if err != nil {
			return err
		}
		h.Absorbed = append(before.Absorbed, h.Absorbed...)
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return b.Put(keyHead, data)
}

func apply(live *bbolt.Bucket, d *replication.Delta) error {
	for _, p := range d.Put {
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if err := live.Put([]byte(p.Record.ID), data); err != nil {
			return err
		}
	}
	for _, x := range d.Deleted {
		if err := live.Delete([]byte(x.ID)); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return s.fail(err)
	}
	return nil
}

var errDamage = errors.New("damaged")

func errDamaged(err error) error { return fmt.Errorf("%w: %w", errDamage, err) }

// fail says which file it is about, and what to do.
func (s *Store) fail(err error) error {
	var advice string
	switch {
	case errors.Is(err, ErrNewer):
		advice = "; run the newer version, or move the file away: the tickets in it are lost then"
	case errors.Is(err, ErrForeign):
		advice = "; give each gateway a data_dir of its own, or move the file away"
	case errors.Is(err, bolterrors.ErrTimeout):
		advice = "; another kgate has it open: give each gateway a data_dir of its own"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		advice = "; the user that runs kgate must be able to write there"
	case errors.Is(err, syscall.ENOSPC):
		advice = "; the disk is full"
	case errors.Is(err, errDamage), errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), strings.Contains(err.Error(), "file size too small"):
		advice = "; the file is damaged or not kgate's: move it away, the tickets in it are lost then"
	}
	return fmt.Errorf("%w: %s: %w%s", ErrDisk, s.path, err, advice)
}
