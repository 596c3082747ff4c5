package raftfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Options of [Open]. The zero value is good for use.
type Options struct {
	// FS to lie on; nil: the operating system's.
	FS FS
	// Failed is called with the first error of a write, by the goroutine that
	// writes.
	Failed func(error)
	// Wrote is called after each record with the time that its write and sync took.
	Wrote func(time.Duration)
}

// File is an open file. It implements raft's three stores. Its methods may be called
// by any number of goroutines; reads do not wait for writes.
type File struct {
	path   string
	fs     FS
	lock   *os.File
	failed func(error)
	wrote  func(time.Duration)
	began  atomic.Pointer[time.Time] // of the write that is under way

	// writing is held while something is written; it guards the next fields.
	writing   sync.Mutex
	handle    Handle
	marker    marker
	rewriteAt uint64
	broken    error

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

// leastRewrite is the size up to which a file is never written again.
const leastRewrite = 1 << 20

// errClosed is the error of writes to a closed file.
var errClosed = errors.New("raftfile: closed")

// Open opens the file at path, or makes one. Beside it there are path.lock, and
// path.new while the file is being written again.
func Open(path string, o Options) (_ *File, err error) {
	f := &File{
		path: path, fs: o.FS, failed: o.Failed, wrote: o.Wrote,
		state: state{stable: make(map[string][]byte)}, pending: make(map[string][]byte),
	}
	if f.fs == nil {
		f.fs = OS{}
	}
	f.committed.Store(&Position{})
	if f.lock, err = lock(path + ".lock"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	switch handle, err := f.fs.Open(path); {
	case errors.Is(err, fs.ErrNotExist):
		return f, f.rewrite()
	case err != nil:
		return nil, err
	default:
		f.handle = handle
	}
	return f, f.load()
}

// load reads the file into memory, and cuts off a write that was never acknowledged.
func (f *File) load() error {
	size, err := f.handle.Size()
	if err != nil {
		return err
	}
	if size > maxFile {
		return damaged("it has %d bytes, at most %d are possible", size, maxFile)
	}
	data := make([]byte, size)
	if n, err := f.handle.ReadAt(data, 0); n < len(data) {
		return fmt.Errorf("read: %w", err)
	}
	if err := checkHeader(data); err != nil {
		return err
	}
	acknowledged, err := decodeMarker(data)
	if err != nil {
		return err
	}
	end, number := firstRecord, uint64(0)
	for {
		r, n, err := decodeRecord(data[end:], number+1)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := f.state.apply(r); err != nil {
			return damaged("record %d: %v", number+1, err)
		}
		end, number = end+n, number+1
		if number == acknowledged.records && uint64(end) != acknowledged.end {
			return damaged("record %d ends at byte %d, not %d", number, end, acknowledged.end)
		}
	}
	if number < acknowledged.records {
		return damaged("record %d of %d, at byte %d, is not as it was written", number+1, acknowledged.records, end)
	}
	f.marker = acknowledged
	f.marker.records, f.marker.end = number, uint64(end)
	f.rewriteAt = max(leastRewrite, 2*f.marker.end)
	f.committed.Store(&Position{acknowledged.committed.Index, acknowledged.committed.Term})
	if int64(end) < size {
		return errors.Join(f.handle.Truncate(int64(end)), f.handle.Sync())
	}
	return nil
}

// Close closes the file; what waits for Flush is not written.
func (f *File) Close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	var errs []error
	if f.handle != nil {
		errs = append(errs, f.handle.Close())
		f.handle = nil
	}
	if f.lock != nil {
		errs = append(errs, f.lock.Close())
		f.lock = nil
	}
	if f.broken == nil {
		f.broken = errClosed
	}
	return errors.Join(errs...)
}

// write puts a record on disk, and then into memory. The caller holds writing.
func (f *File) write(r record) error {
	if f.broken != nil {
		return f.broken
	}
	data, err := r.encode(f.marker.records + 1)
	if err != nil {
		return err
	}
	began := time.Now()
	f.began.Store(&began)
	defer f.began.Store(nil)
	_, err = f.handle.WriteAt(data, int64(f.marker.end))
	if err == nil {
		err = f.handle.Sync()
	}
	if err != nil {
		// Best effort: it was not acknowledged, so it may stay as well.
		_ = f.handle.Truncate(int64(f.marker.end))
		return f.fail(err)
	}
	f.note(began)
	f.marker.records++
	f.marker.end += uint64(len(data))
	if err := f.mark(); err != nil {
		return f.fail(err)
	}
	f.mu.Lock()
	err = f.state.apply(r)
	f.mu.Unlock()
	if err != nil {
		return f.fail(err)
	}
	if f.marker.end > f.rewriteAt {
		if err := f.rewrite(); err != nil {
			return f.fail(err)
		}
	}
	return nil
}

// Writing returns for how long a write has been under way, 0 if there is none.
func (f *File) Writing() time.Duration {
	if began := f.began.Load(); began != nil {
		return time.Since(*began)
	}
	return 0
}

func (f *File) note(began time.Time) {
	if f.wrote != nil {
		f.wrote(time.Since(began))
	}
}

func (f *File) fail(err error) error {
	if f.broken == nil {
		f.broken = err
		if f.failed != nil {
			f.failed(err)
		}
	}
	return err
}

// mark writes the next marker. The caller holds writing.
func (f *File) mark() error {
	f.marker.count++
	f.marker.committed = *f.committed.Load()
	_, err := f.handle.WriteAt(f.marker.encode(), f.marker.place())
	return err
}

// rewrite puts the whole state into a new file. The caller holds writing, or has the
// file for itself.
func (f *File) rewrite() error {
	f.mu.RLock()
	data, err := f.state.whole().encode(1)
	f.mu.RUnlock()
	if err != nil {
		return err
	}
	m := marker{records: 1, end: uint64(firstRecord + len(data)), committed: *f.committed.Load()}
	file := make([]byte, firstRecord, firstRecord+len(data))
	copy(file, encodeHeader())
	copy(file[m.place():], m.encode())
	file = append(file, data...)
	began := time.Now()
	handle, err := f.fs.Create(f.path + ".new")
	if err != nil {
		return err
	}
	_, err = handle.WriteAt(file, 0)
	if err == nil {
		err = handle.Sync()
	}
	if err == nil {
		err = f.fs.Rename(f.path+".new", f.path)
	}
	if err != nil {
		return errors.Join(err, handle.Close())
	}
	f.note(began)
	old := f.handle
	f.handle, f.marker, f.rewriteAt = handle, m, max(leastRewrite, 2*m.end)
	if old != nil {
		return old.Close()
	}
	return nil
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
	defer f.writing.Unlock()
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
	// Whoever is writing now may have written its marker already: the next one
	// takes the note along.
	if f.writing.TryLock() {
		defer f.writing.Unlock()
		if f.broken == nil {
			if err := f.mark(); err != nil {
				_ = f.fail(err)
			}
		}
	}
}

// Committed returns the newest position that NoteCommitted was given, also before the
// file was opened.
func (f *File) Committed() Position { return *f.committed.Load() }
