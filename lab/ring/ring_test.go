package ring

import (
	"math"
	"testing"
)

// The formula agrees with counting, for every small ring.
func TestSuccessIsExact(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for lost := range n + 1 {
			for p := range n + 1 {
				good, all := 0, 0
				gone := make([]bool, n)
				for set := range 1 << n {
					count := 0
					for i := range gone {
						gone[i] = set>>i&1 == 1
						if gone[i] {
							count++
						}
					}
					if count != lost {
						continue
					}
					all++
					if LongestRun(gone) <= p {
						good++
					}
				}
				want := float64(good) / float64(all)
				if got := Success(n, lost, p); math.Abs(got-want) > 1e-9 {
					t.Fatalf("n=%d lost=%d p=%d: %g, want %g", n, lost, p, got, want)
				}
			}
		}
	}
}

// Figure 6 of the paper, N = 100: 20 % and p = 4 is above .95 as printed, 50 % and
// p = 6 is not above .8.
func TestFigure6(t *testing.T) {
	for _, c := range []struct {
		lost, p int
		want    float64
	}{{20, 2, .513}, {20, 3, .894}, {20, 4, .981}, {20, 5, .997}, {50, 4, .147}, {50, 5, .436}, {50, 6, .692}, {50, 7, .849}, {50, 8, .926}} {
		exact, drawn := Success(100, c.lost, c.p), Simulate(100, c.lost, c.p, 20_000, 1)
		if math.Abs(exact-c.want) > .01 || math.Abs(exact-drawn) > .015 {
			t.Errorf("%d lost, p=%d: %.4f, drawn %.4f, want %.3f", c.lost, c.p, exact, drawn, c.want)
		}
	}
	// Nodes that fail on their own: a wider spread of how many do.
	if got := Independent(100, .2, 4); got < .95 || got > .99 {
		t.Errorf("independent: %g", got)
	}
	// "for p = 6 and f = 0.01, the probability is 10^-12": that of p nodes. Here
	// p+1 neighbours have to fail, somewhere on the ring.
	if got := 1 - Independent(100, .01, 5); got > 1e-9 {
		t.Errorf("six in a row at 1 %%: %g", got)
	}
}
