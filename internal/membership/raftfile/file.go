package raftfile

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/journal"
)

// Options of [Open]. The zero value is good for use.
type Options struct {
	// FS to lie on; nil: the operating system's.
	FS journal.FS
	// Failed is called with the first error of a write, by the goroutine that
	// writes.
	Failed func(error)
	// Wrote is called after each record with the time that its write and sync took.
	Wrote func(time.Duration)

	rewriteAt uint64 // 0: the journal's default
}

// File is an open file. It implements raft's three stores. Its methods may be called
// by any number of goroutines; reads do not wait for writes.
type File struct {
	failed func(error)

	// writing is held while something is written; it guards the journal, and told:
	// failed has been called.
	writing sync.Mutex
	journal *journal.Journal
	told    bool

	// committed is the newest position that NoteCommitted was given.
	committed atomic.Pointer[Position]

	// mu guards the memory: what is on disk, and numbers that wait for Flush.
	mu      sync.RWMutex
	state   state
	pending map[string][]byte
}

var (
	_ raft.LogStore          = (*File)(nil)
	_ raft.MonotonicLogStore = (*File)(nil)
	_ raft.StableStore       = (*File)(nil)
	_ raft.SnapshotStore     = (*File)(nil)
)

// Format is the version of the records.
const Format = 3

// Open opens the file at path, or makes one.
func Open(path string, o Options) (*File, error) {
	f := &File{failed: o.Failed, state: state{stable: make(map[string][]byte)}, pending: make(map[string][]byte)}
	f.committed.Store(new(Position))
	var err error
	f.journal, err = journal.Open(path, journal.Options{
		Magic: "kgate raft file\n", Format: Format, Apply: f.load, Whole: f.whole, FS: o.FS, Wrote: o.Wrote, RewriteAt: o.rewriteAt,
	})
	if err != nil {
		return nil, err
	}
	tag := f.journal.Tag()
	f.committed.Store(&Position{tag[0], tag[1]})
	return f, nil
}

// load takes in a record of the file that is opened.
func (f *File) load(body []byte) error {
	r, err := decodeRecord(body)
	if err != nil {
		return err
	}
	return f.state.apply(r)
}

// whole returns the state as one record.
func (f *File) whole() ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return json.Marshal(f.state.whole())
}

// Close closes the file; what waits for Flush is not written.
func (f *File) Close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.journal.Close()
}

// write puts a record on disk, and then into memory. The caller holds writing.
func (f *File) write(r record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := f.journal.Append(body, f.tag()); err != nil {
		return f.fail(err)
	}
	f.mu.Lock()
	err = f.state.apply(r)
	f.mu.Unlock()
	if err != nil {
		return f.fail(err)
	}
	return f.fail(f.journal.Compact())
}

// Writing returns for how long a write has been under way, 0 if there is none.
func (f *File) Writing() time.Duration { return f.journal.Writing() }

// fail tells the first error of a write.
func (f *File) fail(err error) error {
	if err == nil || errors.Is(err, journal.ErrClosed) || f.told {
		return err
	}
	f.told = true
	f.journal.Fail(err)
	if f.failed != nil {
		f.failed(err)
	}
	return err
}

// Note returns what SetNote wrote, nil if nothing.
func (f *File) Note() json.RawMessage {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.note
}

// SetNote writes what the owner has to say about the file.
func (f *File) SetNote(note json.RawMessage) error {
	f.writing.Lock()
	defer f.done()
	return f.write(record{Note: note})
}

// NoteCommitted notes that all voters will keep the log up to p. It does not wait: the
// note is on disk with the next write, and stays if only the process ends.
func (f *File) NoteCommitted(p Position) {
	for {
		have := f.committed.Load()
		if p.Index <= have.Index {
			return
		}
		if f.committed.CompareAndSwap(have, &p) {
			break
		}
	}
	if f.writing.TryLock() { // else whoever is writing does it
		f.done()
	}
}

// done ends a write. It writes what was noted meanwhile, which is lost else if the process
// ends before the next write.
func (f *File) done() {
	for {
		noted := f.tag()
		if f.journal.Tag() != noted && f.journal.Broken() == nil {
			_ = f.fail(f.journal.Mark(noted))
		}
		f.writing.Unlock()
		if f.tag() == noted || !f.writing.TryLock() {
			return
		}
	}
}

// tag is how far the log is agreed on.
func (f *File) tag() journal.Tag {
	p := f.Committed()
	return journal.Tag{p.Index, p.Term}
}

// Committed returns the newest position that NoteCommitted was given, also before the
// file was opened.
func (f *File) Committed() Position { return *f.committed.Load() }
