package transport

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/kgate/kgate/kmutex"
)

// TestOutboxAgainstModel compares an outbox with a list of numbers, over any
// sequence of messages, writes, acknowledgements (also wrong ones) and new
// connections.
func TestOutboxAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := outbox{maxMessages: rapid.IntRange(1, 60).Draw(t, "max"), maxBytes: 1 << 30}
		var last, acked, written, given uint64 // of the model
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				m := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Number: last + 1, Free: kmutex.NewTokenSet(rapid.IntRange(0, 300).Draw(t, "k"))}
				err := o.put("p", &m)
				if full := last-acked == uint64(o.maxMessages); full != errors.Is(err, errOverflow) {
					t.Fatalf("put: %v with %d of %d", err, last-acked, o.maxMessages)
				}
				if err == nil {
					last++
				}
			},
			"take": func(t *rapid.T) {
				limit := rapid.IntRange(1, 500).Draw(t, "limit")
				b, n := o.take(nil, limit)
				if n == 0 && written < last {
					t.Fatalf("nothing taken with %d waiting", last-written)
				}
				if len(b) > limit && n > 1 {
					t.Fatalf("%d bytes in %d messages taken, limit %d", len(b), n, limit)
				}
				for ; n > 0; n-- {
					size, _ := frameLength(b)
					var f frame
					if err := decodeFrame(b[lengthSize:lengthSize+size], names{}, &f); err != nil {
						t.Fatal(err)
					}
					written++
					given = max(given, written)
					if f.number != written || f.message.Number != written {
						t.Fatalf("took message %d (%d inside), want %d", f.number, f.message.Number, written)
					}
					b = b[lengthSize+size:]
				}
				if len(b) > 0 {
					t.Fatalf("%d bytes more than frames", len(b))
				}
			},
			"ack": func(t *rapid.T) {
				n := rapid.Uint64Range(0, last+2).Draw(t, "n")
				err := o.ack(n)
				if ok := n >= acked && n <= written; ok != (err == nil) {
					t.Fatalf("ack(%d): %v with %d acknowledged, %d written", n, err, acked, written)
				}
				if err == nil {
					acked = n
				}
			},
			"rewind": func(t *rapid.T) {
				n := rapid.Uint64Range(acked, written).Draw(t, "n")
				if err := o.rewind(n); err != nil {
					t.Fatal(err)
				}
				acked, written = n, n
			},
			"": func(t *rapid.T) {
				if o.messages() != int(last-acked) || o.unwritten() != (written < last) {
					t.Fatalf("%d messages, unwritten %v; want %d, %v", o.messages(), o.unwritten(), last-acked, written < last)
				}
				if o.messages() == 0 && o.bytes() != 0 {
					t.Fatalf("%d bytes of no message", o.bytes())
				}
				unsent := o.unsent()
				if len(unsent) != int(last-given) {
					t.Fatalf("%d messages never written, want those from %d to %d", len(unsent), given+1, last)
				}
				for i, u := range unsent {
					if want := given + 1 + uint64(i); u.Message.Number != want || u.Pool != "p" {
						t.Fatalf("never written: message %d of pool %q, want %d", u.Message.Number, u.Pool, want)
					}
				}
			},
		})
	})
}

func TestOutboxBoundsBytes(t *testing.T) {
	o := outbox{maxMessages: 1 << 20, maxBytes: 10_000}
	m := kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Free: kmutex.NewTokenSet(6400)}
	n := 0
	for ; ; n++ {
		if err := o.put("p", &m); err != nil {
			if !errors.Is(err, errOverflow) {
				t.Fatal(err)
			}
			break
		}
	}
	if o.bytes() > o.maxBytes || o.messages() != n || n != 10_000/(o.bytes()/n) {
		t.Errorf("%d messages and %d bytes taken", n, o.bytes())
	}
	// What was refused left nothing behind.
	if _, taken := o.take(nil, 1<<20); taken != n {
		t.Errorf("%d messages came out, want %d", taken, n)
	}
	if err := o.ack(uint64(n)); err != nil {
		t.Fatal(err)
	}
	if err := o.put("p", &m); err != nil {
		t.Errorf("after acknowledgement: %v", err)
	}
}

// A queue that never runs empty does not grow: what is acknowledged is reused.
func TestOutboxReusesMemory(t *testing.T) {
	o := outbox{maxMessages: 1 << 20, maxBytes: 1 << 30}
	m := kmutex.Message{Kind: kmutex.KindToken, Epoch: 1}
	for i := range uint64(200_000) {
		if err := o.put("p", &m); err != nil {
			t.Fatal(err)
		}
		o.take(nil, maxBatch)
		if i > 100 {
			if err := o.ack(i - 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cap(o.buf) > 4*outboxSlack {
		t.Errorf("%d bytes for 100 messages", cap(o.buf))
	}
}
