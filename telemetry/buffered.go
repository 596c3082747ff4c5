package telemetry

import (
	"bufio"
	"io"
	"sync"
	"time"
)

const (
	// bufferSize bounds the bytes that wait to be written, bufferTime how long they wait.
	bufferSize = 64 << 10
	bufferTime = 100 * time.Millisecond
)

// Buffered collects lines and writes them together, at the latest after a tenth of a
// second: a system call for each would cost more than the line. It is safe for
// concurrent use. A process that is killed loses the waiting lines.
type Buffered struct {
	w io.Writer

	mu    sync.Mutex // guards the rest
	to    *bufio.Writer
	timer *time.Timer
	armed bool
}

// NewBuffered returns a Buffered that writes to w.
func NewBuffered(w io.Writer) *Buffered {
	b := &Buffered{w: w, to: bufio.NewWriterSize(w, bufferSize)}
	b.timer = time.AfterFunc(time.Hour, func() { _ = b.Flush() })
	b.timer.Stop()
	return b
}

// Write implements io.Writer. Lines stay whole: if a line does not fit into the buffer, Write flushes
// the waiting lines first.
func (b *Buffered) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.to.Available() < len(line) {
		if err := b.to.Flush(); err != nil {
			b.to.Reset(b.w)
			return 0, err
		}
	}
	if !b.armed {
		b.armed = true
		b.timer.Reset(bufferTime)
	}
	return b.to.Write(line)
}

// Flush writes the waiting lines.
func (b *Buffered) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	err := b.to.Flush()
	if err != nil {
		b.to.Reset(b.w) // else it would fail for ever
	}
	return err
}
