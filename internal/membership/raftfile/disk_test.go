package raftfile

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"time"
)

// disk is an FS in memory that loses power: what was written after the last sync
// may be there, or not, or in part.
type disk struct {
	mu    sync.Mutex
	files map[string]*content
	syncs int
	// delay of each sync, and the error of writes from now on.
	delay time.Duration
	full  error
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

func newDisk() *disk { return &disk{files: make(map[string]*content)} }

// lose cuts the power: of what was not synced only some sectors are there.
func (d *disk) lose(r *rand.Rand) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := newDisk()
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

func (d *disk) Open(path string) (Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[path] == nil {
		return nil, fs.ErrNotExist
	}
	return &handle{d, d.files[path]}, nil
}

func (d *disk) Create(path string) (Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full != nil {
		return nil, d.full
	}
	d.files[path] = &content{}
	return &handle{d, d.files[path]}, nil
}

func (d *disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

type handle struct {
	d *disk
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
	time.Sleep(h.d.delay)
	if h.d.full != nil {
		return h.d.full
	}
	h.d.syncs++
	h.c.synced, h.c.since = h.c.now(), nil
	return nil
}

func (h *handle) Close() error { return nil }

var errNoSpace = errors.New("no space left")
