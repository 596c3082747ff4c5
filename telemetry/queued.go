package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// queueSize bounds the bytes that wait to be written.
const queueSize = 1 << 20

// Queued is a writer that never blocks its caller: one goroutine writes the queued lines. A caller
// may hold a lock that a lease needs, and the reader of a log can stop reading. When the queue is
// full, lines are dropped, and a line says how many once there is room again. It is safe for
// concurrent use. A process that is killed, or panics, loses the queued lines.
type Queued struct {
	w    io.Writer
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards the rest; not held during writes to w
	wake    *sync.Cond
	lines   [][]byte
	size    int // bytes of lines, and of the lines being written
	dropped uint64
	untold  uint64 // of dropped
	closed  bool
}

// NewQueued returns a Queued that writes to w until it is closed.
func NewQueued(w io.Writer) *Queued {
	q := &Queued{w: w, done: make(chan struct{})}
	q.wake = sync.NewCond(&q.mu)
	go q.run()
	return q
}

// Write implements io.Writer. line is one line or several. Write does not retain it and
// returns no error: lines that are dropped are counted.
func (q *Queued) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.size+len(line) > queueSize {
		lines := uint64(bytes.Count(line, []byte{'\n'}))
		q.dropped += lines
		q.untold += lines
		return len(line), nil
	}
	q.size += len(line)
	q.lines = append(q.lines, append([]byte(nil), line...))
	q.wake.Signal()
	return len(line), nil
}

// lost returns how many lines have been dropped.
func (q *Queued) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Close drops later lines and waits until the queued ones are written, at most for patience: the
// reader may never read again.
func (q *Queued) Close(patience time.Duration) {
	q.mu.Lock()
	q.closed = true
	q.wake.Signal()
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-time.After(patience):
	}
}

func (q *Queued) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.lines) == 0 && q.untold == 0 && !q.closed {
			q.wake.Wait()
		}
		lines, untold, size := q.lines, q.untold, q.size
		q.lines, q.untold = nil, 0
		q.mu.Unlock()
		if len(lines) == 0 && untold == 0 {
			return
		}
		for _, line := range lines {
			_, _ = q.w.Write(line) // there is nowhere to tell of an error
		}
		if untold > 0 {
			fmt.Fprintf(q.w, `{"level":"WARN","msg":"log lines were dropped: nobody read the log","lines":%d}`+"\n", untold)
		}
		q.mu.Lock()
		q.size -= size
		q.mu.Unlock()
	}
}
