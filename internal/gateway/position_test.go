package gateway

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestExpectedWait: what a place in the line is told to expect is within a factor of two of what it
// waits, on average, for holds that are equal and for holds that are exponential.
func TestExpectedWait(t *testing.T) {
	const hold, rounds = 30 * time.Second, 1000
	for name, draw := range map[string]func(r *rand.Rand) time.Duration{
		"equal":       func(*rand.Rand) time.Duration { return hold },
		"exponential": func(r *rand.Rand) time.Duration { return time.Duration(float64(hold) * r.ExpFloat64()) },
	} {
		for _, k := range []int{1, 2, 6, 40} {
			for _, place := range []int{1, 4, 30} {
				r := rand.New(rand.NewPCG(1, uint64(k)))
				var told, waited time.Duration
				for range rounds {
					free := make([]time.Duration, k) // when each slot is free again
					var held []time.Duration
					for i := range free {
						held = append(held, 0)
						held[i], free[i] = between(r, draw)
					}
					told += expect(place, k, hold, held)[place-1]
					for range place - 1 {
						slices.Sort(free)
						free[0] += draw(r)
					}
					waited += slices.Min(free)
				}
				if ratio := float64(told) / float64(waited); ratio < 0.5 || ratio > 2 {
					t.Errorf("%s holds, k = %d, place %d: told %v, waited %v on average", name, k, place, told/rounds, waited/rounds)
				}
			}
		}
	}
}

// between returns how long a hold has lasted at some moment, and how long it still does.
func between(r *rand.Rand, draw func(*rand.Rand) time.Duration) (before, after time.Duration) {
	at := time.Duration(float64(20*time.Minute) * (1 + r.Float64()))
	for {
		length := draw(r)
		if at < length {
			return at, length - at
		}
		at -= length
	}
}

// TestExpectedWaitOfAPlace: k = 2, holds of 30 s.
func TestExpectedWaitOfAPlace(t *testing.T) {
	waits := expect(5, 2, 30*time.Second, []time.Duration{10 * time.Second, 25 * time.Second})
	if want := []time.Duration{5 * time.Second, 20 * time.Second, 35 * time.Second, 50 * time.Second, 65 * time.Second}; !slices.Equal(waits, want) {
		t.Errorf("%v, want %v", waits, want)
	}
	if waits := expect(4, 2, 0, []time.Duration{time.Second}); waits != nil {
		t.Errorf("no hold has ended, and yet: %v", waits)
	}
}
