// Package journaltest has disks for tests that lose power, fill up and forget.
package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"sync"

	"github.com/kgate/kgate/internal/journal"
)

// Disk is a [journal.FS] in memory that loses power: what was written after the last sync
// may be there, or not, or in part.
type Disk struct {
	mu    sync.Mutex
	files map[string]*content
	full  error // of writes from now on
	// interrupted: syncs fail, and nothing is synced.
	interrupted bool
}

// content of a file: what was synced, and what was written since.
type content struct {
	synced []byte
	since  []change
}

// change is a write, or a new size (data is nil).
type change struct {
	at   int64
	data []byte
}

// sector is what a disk writes whole or not at all.
const sector = 512

func (c change) on(b []byte) []byte {
	if c.data == nil {
		if int64(len(b)) > c.at {
			return b[:c.at]
		}
		return append(b, make([]byte, c.at-int64(len(b)))...)
	}
	if end := c.at + int64(len(c.data)); int64(len(b)) < end {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[c.at:], c.data)
	return b
}

// now returns what a reader sees.
func (c *content) now() []byte {
	b := append([]byte(nil), c.synced...)
	for _, w := range c.since {
		b = w.on(b)
	}
	return b
}

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{files: make(map[string]*content)} }

// Lose cuts the power: of what was not synced only some sectors are there.
func (d *Disk) Lose(r *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := NewDisk()
	for name, c := range d.files {
		b := append([]byte(nil), c.synced...)
		for _, w := range c.since {
			for at := 0; w.data == nil || at < len(w.data); {
				end := min(at+sector-int(w.at+int64(at))%sector, len(w.data))
				part := change{w.at + int64(at), w.data[at:end:end]}
				if w.data == nil {
					part = w
				}
				if r.IntN(2) == 0 {
					b = part.on(b)
				}
				if w.data == nil {
					break
				}
				at = end
			}
		}
		after.files[name] = &content{synced: b}
	}
	return after
}

// Open implements [journal.FS].
func (d *Disk) Open(path string) (journal.Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[path] == nil {
		return nil, fs.ErrNotExist
	}
	return &handle{d, d.files[path]}, nil
}

// Create implements [journal.FS].
func (d *Disk) Create(path string) (journal.Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full != nil {
		return nil, d.full
	}
	d.files[path] = &content{}
	return &handle{d, d.files[path]}, nil
}

// Remove implements [journal.FS].
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, path)
	return nil
}

// Rename implements [journal.FS].
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

type handle struct {
	d *Disk
	c *content
}

func (h *handle) ReadAt(p []byte, at int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	b := h.c.now()
	if at >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, at int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.full != nil { // some of it fits
		h.c.since = append(h.c.since, change{at, append([]byte{}, p[:len(p)/2]...)})
		return len(p) / 2, h.d.full
	}
	h.c.since = append(h.c.since, change{at, append([]byte{}, p...)})
	return len(p), nil
}

func (h *handle) Truncate(size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.c.since = append(h.c.since, change{at: size})
	return nil
}

func (h *handle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return int64(len(h.c.now())), nil
}

func (h *handle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.full != nil {
		return h.d.full
	}
	if h.d.interrupted {
		return errors.New("the power went")
	}
	h.c.synced, h.c.since = h.c.now(), nil
	return nil
}

func (h *handle) Close() error { return nil }

// ErrNoSpace is what writes to a full disk fail with.
var ErrNoSpace = errors.New("no space left")

// Fill makes writes fail from now on with err; nil: no longer.
func (d *Disk) Fill(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

// Read returns what a file holds.
func (d *Disk) Read(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[path].now()
}

// Write makes a file that holds data, synced.
func (d *Disk) Write(path string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path] = &content{synced: data}
}

// Damage returns damaged copies of data, with what was done to each.
func Damage(data []byte, copies int) iter.Seq2[string, []byte] {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := []struct {
		name  string
		spoil func(b []byte) []byte
	}{
		{"flip", func(b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
		{"flip what is used", func(b []byte) []byte { // header, markers, records
			used := []int{r.IntN(24), 512 + r.IntN(44), 1024 + r.IntN(44), 4096 + r.IntN(len(b)-4096)}
			b[used[r.IntN(len(used))]] ^= 1 << r.IntN(8)
			return b
		}},
		{"cut", func(b []byte) []byte { return b[:r.IntN(len(b))] }},
		{"zero", func(b []byte) []byte { at := r.IntN(len(b)); clear(b[at:min(len(b), at+1+r.IntN(2048))]); return b }},
		{"zero the end", func(b []byte) []byte { clear(b[r.IntN(len(b)):]); return b }},
	}
	return func(yield func(string, []byte) bool) {
		for i := range copies {
			kind := kinds[i%len(kinds)]
			if !yield(fmt.Sprintf("%d, %s", i, kind.name), kind.spoil(bytes.Clone(data))) {
				return
			}
		}
	}
}

// Interrupt makes syncs fail from now on: the power is about to go.
func (d *Disk) Interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interrupted = true
}
