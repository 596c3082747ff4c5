package telemetry

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// writes keeps what it is given, write by write. While broken is set, it fails.
type writes struct {
	mu     sync.Mutex // guards the rest
	all    []string
	broken error
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return 0, w.broken
	}
	w.all = append(w.all, string(b))
	return len(b), nil
}

func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// TestBufferedWritesTogether: lines wait for bufferTime, and are then written at once.
func TestBufferedWritesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(writes)
		b := NewBuffered(w)
		write(t, b, "one\n")
		time.Sleep(bufferTime / 2)
		write(t, b, "two\n")
		if got := w.take(); got != nil {
			t.Fatalf("written at once: %q", got)
		}
		time.Sleep(bufferTime/2 + 1)
		synctest.Wait()
		if got := strings.Join(w.take(), "|"); got != "one\ntwo\n" {
			t.Errorf("after %v: %q", bufferTime, got)
		}
		write(t, b, "three\n")
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.take(), "|"); got != "three\n" {
			t.Errorf("flushed: %q", got)
		}
		time.Sleep(2 * bufferTime) // the timer is still armed, and finds nothing
	})
}

// TestBufferedKeepsLinesWhole: no write ends within a line, unless the line alone is
// larger than the buffer.
func TestBufferedKeepsLinesWhole(t *testing.T) {
	w := new(writes)
	b := NewBuffered(w)
	line := strings.Repeat("x", 999) + "\n"
	const n = 3 * bufferSize / 1000
	for range n {
		write(t, b, line)
	}
	large := strings.Repeat("y", 2*bufferSize) + "\n"
	write(t, b, large)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	all := w.take()
	for _, part := range all {
		if !strings.HasSuffix(part, "\n") {
			t.Errorf("a write ends within a line: %q", part[max(0, len(part)-20):])
		}
	}
	if got := strings.Join(all, ""); got != strings.Repeat(line, n)+large {
		t.Errorf("%d bytes came, want %d", len(got), n*1000+len(large))
	}
}

// TestBufferedOutlivesErrors: a failed write loses the lines that waited, and none after them.
func TestBufferedOutlivesErrors(t *testing.T) {
	broken := errors.New("disk full")
	w := &writes{broken: broken}
	b := NewBuffered(w)
	write(t, b, "lost\n")
	if err := b.Flush(); !errors.Is(err, broken) {
		t.Errorf("flush: %v", err)
	}
	w.broken = nil
	write(t, b, "kept\n")
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.take(), "|"); got != "kept\n" {
		t.Errorf("%q", got)
	}
}

func write(t *testing.T, b *Buffered, line string) {
	t.Helper()
	if n, err := b.Write([]byte(line)); n != len(line) || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
}
