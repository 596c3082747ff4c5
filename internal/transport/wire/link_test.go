package wire

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// put queues the message n, of size bytes at least.
func put(l *Link, n uint64, size int) error {
	return l.Commit(append(binary.BigEndian.AppendUint64(l.Begin(), n), make([]byte, size)...))
}

// TestLinkAgainstModel compares a link with a list of numbers, over any sequence of messages,
// writes, acknowledgements (also wrong ones) and new connections.
func TestLinkAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Link{MaxMessages: rapid.IntRange(1, 60).Draw(t, "max"), MaxBytes: 1 << 30}
		var last, acked, written, given uint64 // of the model
		var part []byte
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				size := rapid.SampledFrom([]int{0, 100, fragment - 8, fragment - 7, 3 * fragment}).Draw(t, "size")
				err := put(&l, last+1, size)
				if full := last-acked == uint64(l.MaxMessages); full != errors.Is(err, ErrFull) {
					t.Fatalf("put: %v with %d of %d", err, last-acked, l.MaxMessages)
				}
				if err == nil {
					last++
				}
			},
			"take": func(t *rapid.T) {
				limit := rapid.IntRange(1, 2*fragment).Draw(t, "limit")
				window := rapid.SampledFrom([]int{fragment, 1 << 30}).Draw(t, "window")
				if !l.due(window) {
					if window > fragment && written < last || l.flying() < window && l.unwritten() {
						t.Fatalf("nothing is due, with %d bytes unacknowledged", l.flying())
					}
					return
				}
				b, n := l.take(nil, limit, window)
				if len(b) == 0 && written < last {
					t.Fatalf("nothing taken with %d waiting", last-written)
				}
				for ; len(b) > 0; b = b[frameSize(b):] {
					var f frame
					if err := decode(b[lengthSize:frameSize(b)], &f); err != nil {
						t.Fatal(err)
					}
					if len(b) > limit && frameSize(b) < len(b) {
						t.Fatalf("%d bytes taken, limit %d", len(b), limit)
					}
					if part = append(part, f.data...); f.flag {
						given = max(given, written+1)
						continue
					}
					n--
					written++
					given = max(given, written)
					if got := binary.BigEndian.Uint64(part); got != written {
						t.Fatalf("took message %d, want %d", got, written)
					}
					part = nil
				}
				if n != 0 {
					t.Fatalf("%d messages more were taken than came", n)
				}
			},
			"ack": func(t *rapid.T) {
				n := rapid.Uint64Range(0, last+2).Draw(t, "n")
				err := l.ack(n)
				if ok := n >= acked && n <= written; ok != (err == nil) {
					t.Fatalf("ack(%d): %v with %d acknowledged, %d written", n, err, acked, written)
				}
				if err == nil {
					acked = n
				}
			},
			"rewind": func(t *rapid.T) {
				n := rapid.Uint64Range(acked, written).Draw(t, "n")
				if err := l.rewind(n); err != nil {
					t.Fatal(err)
				}
				acked, written, part = n, n, nil
			},
			"": func(t *rapid.T) {
				if l.Queued() != int(last-acked) || l.unwritten() != (written < last) {
					t.Fatalf("%d messages, unwritten %v; want %d, %v", l.Queued(), l.unwritten(), last-acked, written < last)
				}
				next := given
				l.Unsent(func(b []byte) {
					if next++; binary.BigEndian.Uint64(b) != next {
						t.Fatalf("never written: message %d, want %d", binary.BigEndian.Uint64(b), next)
					}
				})
				if next != last {
					t.Fatalf("messages never written end with %d, want %d", next, last)
				}
			},
		})
	})
}

func TestLinkBoundsBytes(t *testing.T) {
	l := Link{MaxMessages: 1 << 20, MaxBytes: 10_000}
	n := 0
	for ; put(&l, 1, 100) == nil; n++ {
	}
	if len(l.buf) > l.MaxBytes || l.Queued() != n || n != 10_000/(len(l.buf)/n) {
		t.Errorf("%d messages and %d bytes taken", n, len(l.buf))
	}
	// What was refused left nothing behind.
	if _, taken := l.take(nil, 1<<20, 1<<30); taken != n {
		t.Errorf("%d messages came out, want %d", taken, n)
	}
	if err := errors.Join(l.ack(uint64(n)), put(&l, 1, 100)); err != nil {
		t.Error(err)
	}
}

// A queue that never runs empty does not grow: what is acknowledged is reused.
func TestLinkReusesMemory(t *testing.T) {
	l := Link{MaxMessages: 1 << 20, MaxBytes: 1 << 30}
	for i := range uint64(200_000) {
		if err := put(&l, i, 10); err != nil {
			t.Fatal(err)
		}
		l.take(nil, MaxBatch, 1<<30)
		if i > 100 {
			if err := l.ack(i - 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cap(l.buf) > 4*slack {
		t.Errorf("%d bytes for 100 messages", cap(l.buf))
	}
}
