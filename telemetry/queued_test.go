package telemetry

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A caller that logs does not wait for a reader that has stopped. When the reader reads again, it
// gets whole lines and the number of lines that it missed.
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
	said := 0 // in two lines if the goroutine began late
	for _, m := range regexp.MustCompile(`"lines":(\d+)}`).FindAllSubmatch(all, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Error(err)
		}
		said += n
	}
	if said != queueSize/1024 {
		t.Errorf("of %d lines it is said that they were dropped, want %d", said, queueSize/1024)
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
