package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"
)

// Options of [Open].
type Options struct {
	// Magic is the beginning of the file: 16 bytes.
	Magic string
	// Format of the records; a file of another format is refused.
	Format uint32
	// Apply takes in a record of the file that is opened. An error means that the file is
	// damaged; an error that wraps [ErrForeign] is returned as it is.
	Apply func(body []byte) error
	// Whole returns one record that stands for all appended records.
	Whole func() ([]byte, error)
	// FS to lie on; nil: the operating system's.
	FS FS
	// Wrote is called after each record with the time of its write and sync; may be nil.
	Wrote func(time.Duration)
	// RewriteAt is the size in bytes up to which a file is never rewritten; 0: 1 MiB.
	RewriteAt uint64
}

// Journal is an open file. Its methods are called by one goroutine at a time, except
// Writing.
type Journal struct {
	path    string
	options Options
	lock    *os.File

	handle    Handle
	marker    marker
	rewriteAt uint64
	created   bool
	broken    error
}

// ErrClosed is the error of writes to a closed file.
var ErrClosed = errors.New("closed")

// Open opens the file at path, or makes it. Beside it there are path.lock and, while the file is
// rewritten, path.new.
func Open(path string, o Options) (_ *Journal, err error) {
	if o.FS == nil {
		o.FS = OS{}
	}
	o.RewriteAt = cmp.Or(o.RewriteAt, 1<<20)
	j := &Journal{path: path, options: o}
	// The file alone is not enough: it is replaced when it has grown, and at first there is none.
	if j.lock, err = openLocked(path+".lock", os.O_RDWR|os.O_CREATE); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
		}
	}()
	switch handle, err := o.FS.Open(path); {
	case errors.Is(err, fs.ErrNotExist):
		j.created = true
		return j, j.rewrite()
	case err != nil:
		return nil, err
	default:
		j.handle = handle
	}
	return j, j.load()
}

// Created reports whether Open has made the file.
func (j *Journal) Created() bool { return j.created }

// load reads the file, and cuts off a write that was never acknowledged.
func (j *Journal) load() error {
	size, err := j.handle.Size()
	if err != nil {
		return err
	}
	if size > maxFile {
		return damaged("it has %d bytes, at most %d are possible", size, maxFile)
	}
	data := make([]byte, size)
	if n, err := j.handle.ReadAt(data, 0); n < len(data) {
		return fmt.Errorf("read: %w", err)
	}
	if err := checkHeader(data, j.options.Magic, j.options.Format); err != nil {
		return err
	}
	acknowledged, err := decodeMarker(data)
	if err != nil {
		return err
	}
	end, number := firstRecord, uint64(0)
	for {
		body, n := decodeRecord(data[end:], number+1)
		if n == 0 {
			break
		}
		if err := j.options.Apply(body); errors.Is(err, ErrForeign) {
			return err
		} else if err != nil {
			return damaged("record %d: %w", number+1, err)
		}
		end, number = end+n, number+1
		if number == acknowledged.records && uint64(end) != acknowledged.end {
			return damaged("record %d ends at byte %d, not %d", number, end, acknowledged.end)
		}
	}
	if number < acknowledged.records {
		return damaged("record %d of %d, at byte %d, is not as it was written", number+1, acknowledged.records, end)
	}
	j.marker = acknowledged
	j.marker.records, j.marker.end = number, uint64(end)
	j.rewriteAt = max(j.options.RewriteAt, 2*j.marker.end)
	if int64(end) < size {
		return errors.Join(j.handle.Truncate(int64(end)), j.handle.Sync())
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error {
	var errs []error
	if j.handle != nil {
		errs = append(errs, j.handle.Close())
		j.handle = nil
	}
	if j.lock != nil {
		errs = append(errs, j.lock.Close())
		j.lock = nil
	}
	j.broken = ErrClosed
	return errors.Join(errs...)
}

// Append writes a record, and a marker. From then on Whole must include the record. Then
// call Compact.
func (j *Journal) Append(body []byte) error {
	if j.broken != nil {
		return j.broken
	}
	if j.marker.end+uint64(len(body))+recordHeader > maxFile || len(body) > math.MaxInt32 {
		return fmt.Errorf("a record of %d bytes does not fit behind %d", len(body), j.marker.end)
	}
	data := encodeRecord(body, j.marker.records+1)
	began := time.Now()
	_, err := j.handle.WriteAt(data, int64(j.marker.end))
	if err == nil {
		err = j.handle.Sync()
	}
	if err != nil {
		// Best effort: it was not acknowledged, so it may stay as well.
		_ = j.handle.Truncate(int64(j.marker.end))
		return j.fail(err)
	}
	j.wrote(began)
	j.marker.records++
	j.marker.end += uint64(len(data))
	return j.mark()
}

// Compact rewrites the file if it has grown.
func (j *Journal) Compact() error {
	if j.broken != nil || j.marker.end <= j.rewriteAt {
		return j.broken
	}
	if err := j.rewrite(); err != nil {
		return j.fail(err)
	}
	return nil
}

// Recover writes the whole state to a new file after a write has failed.
func (j *Journal) Recover() error {
	if j.broken == nil || errors.Is(j.broken, ErrClosed) {
		return j.broken
	}
	if err := j.rewrite(); err != nil {
		return err
	}
	j.broken = nil
	return nil
}

// mark writes a marker. It does not wait: the marker is on disk with the next record, and
// survives the end of the process alone.
func (j *Journal) mark() error {
	j.marker.count++
	if _, err := j.handle.WriteAt(j.marker.encode(), j.marker.place()); err != nil {
		return j.fail(err)
	}
	return nil
}

func (j *Journal) wrote(began time.Time) {
	if j.options.Wrote != nil {
		j.options.Wrote(time.Since(began))
	}
}

// Fail makes every later write fail with err.
func (j *Journal) Fail(err error) { _ = j.fail(err) }

func (j *Journal) fail(err error) error {
	if j.broken == nil {
		j.broken = err
	}
	return err
}

// rewrite puts the whole state into a new file.
func (j *Journal) rewrite() error {
	body, err := j.options.Whole()
	if err != nil {
		return err
	}
	data := encodeRecord(body, 1)
	m := marker{records: 1, end: uint64(firstRecord + len(data))}
	file := make([]byte, firstRecord, firstRecord+len(data))
	copy(file, encodeHeader(j.options.Magic, j.options.Format))
	copy(file[m.place():], m.encode())
	file = append(file, data...)
	began := time.Now()
	handle, err := j.options.FS.Create(j.path + ".new")
	if err != nil {
		return err
	}
	_, err = handle.WriteAt(file, 0)
	if err == nil {
		err = handle.Sync()
	}
	if err == nil {
		err = j.options.FS.Rename(j.path+".new", j.path)
	}
	if err != nil {
		err = errors.Join(err, handle.Close())
		_ = j.options.FS.Remove(j.path + ".new") // the disk may be full
		return err
	}
	j.wrote(began)
	old := j.handle
	j.handle, j.marker, j.rewriteAt = handle, m, max(j.options.RewriteAt, 2*m.end)
	if old != nil {
		return old.Close()
	}
	return nil
}
