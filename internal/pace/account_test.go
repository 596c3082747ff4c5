package pace

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fleet is gateways that share a pool's tokens and move as much as they can, at the worst moments. It
// notes how much was moved, and when.
type fleet struct {
	rate     int64
	parts    int
	accounts []account
	tokens   []int
	flying   int   // tokens that are on their way
	held     []int // taken and not moved, by transfer; a transfer stands for a running token
	now      time.Duration
	moved    []move
}

type move struct {
	at time.Duration
	n  int
}

func (f *fleet) set(g int) {
	f.accounts[g].Set(f.now, f.tokens[g], float64(f.rate)/float64(f.parts))
}

func (f *fleet) move(n int) {
	if last := len(f.moved) - 1; last >= 0 && f.moved[last].at == f.now {
		f.moved[last].n += n
		return
	}
	f.moved = append(f.moved, move{f.now, n})
}

// check compares the bytes moved in every interval with the bound.
func (f *fleet) check(t *rapid.T) {
	burst := float64(Burst(f.rate, f.parts))
	for i := range f.moved {
		sum := 0
		for _, m := range f.moved[i:] {
			sum += m.n
			if most := float64(f.rate)*(m.at-f.moved[i].at).Seconds() + burst; float64(sum) > most+1 {
				t.Fatalf("%d bytes in %v, at most %.0f", sum, m.at-f.moved[i].at, most)
			}
		}
	}
}

// TestBound: for any moves of tokens, in no time t do all gateways together move more than rate*t and
// the burst.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.IntRange(1, 12).Draw(t, "parts")
		f := &fleet{
			rate: int64(rapid.SampledFrom([]int{1 << 10, 1 << 20, 50 << 20, 10 << 30}).Draw(t, "rate")), parts: parts,
			accounts: make([]account, 3), tokens: make([]int, 3), held: make([]int, parts),
		}
		f.tokens[0] = parts
		for g := range f.accounts {
			f.set(g)
		}
		gateway := rapid.IntRange(0, 2)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			f.now += rapid.SampledFrom([]time.Duration{0, time.Millisecond, keep, 20 * time.Millisecond, time.Second}).Draw(t, "pause")
			switch g := gateway.Draw(t, "gateway"); rapid.IntRange(0, 5).Draw(t, "what") {
			case 0: // tokens leave
				n := rapid.IntRange(0, f.tokens[g]).Draw(t, "leave")
				f.tokens[g] -= n
				f.set(g)
				f.flying += n
			case 1: // and arrive
				n := rapid.IntRange(0, f.flying).Draw(t, "arrive")
				f.flying -= n
				f.tokens[g] += n
				f.set(g)
			case 2: // each transfer takes something, and moves it later
				for i := range f.held {
					if f.held[i] == 0 {
						f.held[i] = f.accounts[g].Take(f.now, rapid.IntRange(1, math.MaxInt32).Draw(t, "want"))
					}
				}
			case 3: // they move it, or give it back, also where it was not taken: there it is worth no more
				for i := range f.held {
					unused := rapid.IntRange(0, f.held[i]).Draw(t, "unused")
					f.accounts[g].Return(f.now, unused)
					f.move(f.held[i] - unused)
					f.held[i] = 0
				}
			default: // all that can be had is moved
				for n := f.accounts[g].Take(f.now, math.MaxInt32); n > 0; n = f.accounts[g].Take(f.now, math.MaxInt32) {
					f.move(n)
				}
			}
		}
		f.check(t)
	})
}

// TestUsed: a transfer that takes all it can gets the whole share, also if it takes only every few
// milliseconds.
func TestUsed(t *testing.T) {
	for _, late := range []time.Duration{100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		var a account
		const rate, parts = 50 << 20, 6
		a.Set(0, 2, rate/parts)
		moved := 0
		for now := time.Duration(0); now < time.Second; now += late {
			for n := a.Take(now, 1<<20); n > 0; n = a.Take(now, 1<<20) {
				moved += n
			}
		}
		if share := rate * 2 / parts; float64(moved) < 0.99*float64(share) {
			t.Errorf("every %v: %d bytes of %d", late, moved, share)
		}
	}
}

// TestWait: Take gives something after Wait's time, and not before.
func TestWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a account
		a.Set(0, rapid.IntRange(0, 5).Draw(t, "tokens"), float64(rapid.IntRange(1, 1<<30).Draw(t, "each")))
		want := rapid.IntRange(1, 1<<20).Draw(t, "want")
		now := time.Duration(0)
		for range rapid.IntRange(0, 3).Draw(t, "taken before") {
			a.Take(now, want)
		}
		wait := a.Wait(want)
		if wait < 0 {
			if a.Take(now+time.Hour, want) != 0 {
				t.Fatal("something came without a token")
			}
			return
		}
		if wait > time.Microsecond && a.Take(now+wait-time.Microsecond, want) != 0 && wait > 2*time.Microsecond {
			t.Fatalf("something came before %v", wait)
		}
		if a.Take(now+wait+time.Microsecond, want) == 0 {
			t.Fatalf("nothing came after %v", wait)
		}
	})
}
