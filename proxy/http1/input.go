package http1

import (
	"io"
	"sync"
)

// minBuffer is the size of the smallest buffers that are lent.
const minBuffer = 2 << 10

// buffer is a lent one.
type buffer struct{ b []byte }

// lent has buffers of 2, 4, 8 and 16 KiB. A larger one is made for its head.
var lent [4]sync.Pool

func lend(size int) *buffer {
	n := minBuffer
	for i := range lent {
		if size <= n {
			if b, ok := lent[i].Get().(*buffer); ok {
				return b
			}
			return &buffer{make([]byte, n)}
		}
		n <<= 1
	}
	return &buffer{make([]byte, size)}
}

func (b *buffer) giveBack() {
	n := minBuffer
	for i := range lent {
		if len(b.b) == n {
			lent[i].Put(b)
			return
		}
		n <<= 1
	}
}

// Input is what has been read from a connection and not used. It borrows a buffer to
// read, and gives it back at a Release, but for what is unused. It is for one goroutine at a time.
type Input struct {
	src  io.Reader
	max  int
	buf  *buffer // nil: none
	r, w int     // where in it what is unused begins and ends
}

// NewInput returns an Input that reads from src and buffers up to most bytes of a head.
func NewInput(src io.Reader, most int) *Input {
	in := new(Input)
	in.Reset(src, most)
	return in
}

// Reset makes in what NewInput returns.
func (in *Input) Reset(src io.Reader, most int) {
	in.drop()
	*in = Input{src: src, max: most}
}

// Buffered returns what is unused. It is valid until the next Fill or Release: it
// stays in its place when it is used.
func (in *Input) Buffered() []byte {
	if in.buf == nil {
		return nil
	}
	return in.buf.b[in.r:in.w]
}

// Len returns the length of what Buffered returns.
func (in *Input) Len() int { return in.w - in.r }

// Discard uses n bytes of what Buffered returns.
func (in *Input) Discard(n int) { in.r += n }

// Release gives back the buffer, or takes a smaller one for what is unused.
func (in *Input) Release() {
	var smaller *buffer
	switch n := in.Len(); {
	case in.buf == nil, n > 0 && n > len(in.buf.b)/2, n > 0 && len(in.buf.b) == minBuffer:
		return
	case n > 0:
		smaller = lend(n)
		copy(smaller.b, in.Buffered())
	}
	in.buf.giveBack()
	in.buf, in.r, in.w = smaller, 0, in.Len()
}

// Size returns how much memory is held for what is unused.
func (in *Input) Size() int {
	if in.buf == nil {
		return 0
	}
	return len(in.buf.b)
}

// drop gives the buffer back.
func (in *Input) drop() {
	in.r = in.w
	in.Release()
}

// Fill reads once more. It fails with io.ErrShortBuffer if nothing more fits: the caller has then
// not used what it must.
func (in *Input) Fill() error {
	if err := in.makeRoom(); err != nil {
		return err
	}
	n, err := in.readSource(in.buf.b[in.w:])
	in.w += n
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// readSource reads at least one byte, or fails.
func (in *Input) readSource(p []byte) (int, error) {
	const patience = 100
	for range patience {
		if n, err := in.src.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// makeRoom makes room behind what is unused.
func (in *Input) makeRoom() error {
	if in.buf == nil {
		in.buf = lend(minBuffer)
	}
	if in.r == in.w {
		in.r, in.w = 0, 0
	}
	if in.w < len(in.buf.b) {
		return nil
	}
	unused := in.buf.b[in.r:in.w]
	if in.r > 0 {
		in.r, in.w = 0, copy(in.buf.b, unused)
		return nil
	}
	if len(unused) >= in.max {
		return io.ErrShortBuffer
	}
	larger := lend(min(max(2*len(unused), minBuffer), max(in.max, minBuffer)))
	in.w = copy(larger.b, unused)
	in.buf.giveBack()
	in.buf = larger
	return nil
}
