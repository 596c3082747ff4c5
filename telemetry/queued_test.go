package telemetry

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// Nobody who logs waits for a reader that has stopped; when it reads again, it gets
// whole lines and the number of those it has missed.
func TestQueuedNeverWaits(t *testing.T) {
	r, w := io.Pipe()
	q := NewQueued(w)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 2 * queueSize / len(line) {
			_, _ = q.Write(line)
		}
	}()
	select {
	case <-written:
	case <-time.After(20 * time.Second):
		t.Fatal("a writer waits for the reader")
	}
	if got := q.lost(); got != queueSize/1024 {
		t.Errorf("%d lines dropped, want %d", got, queueSize/1024)
	}
	var all []byte
	read := make(chan struct{})
	go func() { all, _ = io.ReadAll(r); close(read) }()
	q.Close(20 * time.Second)
	_ = w.Close()
	<-read
	if got := bytes.Count(all, line); got != queueSize/1024 {
		t.Errorf("%d lines came, want %d", got, queueSize/1024)
	}
	if !bytes.Contains(all, []byte(`"lines":1024}`)) {
		t.Errorf("nobody says what was dropped: %s", all[max(0, len(all)-200):])
	}
}

// Close ends though nobody reads.
func TestQueuedCloseIsBounded(t *testing.T) {
	r, w := io.Pipe()
	q := NewQueued(w)
	_, _ = q.Write([]byte("a line\n"))
	q.Close(time.Millisecond)
	_ = r.Close() // ends the goroutine
	<-q.done
}
