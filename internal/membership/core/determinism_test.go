package core

import (
	"strings"
	"testing"
)

// A seed tells all that happens: elections, joins, voters that are replaced.
func TestSameSeedSameWorld(t *testing.T) {
	elections, joins, swaps := 0, 0, 0
	for seed := uint64(1); seed <= 20; seed++ {
		var traces [2]string
		for i := range traces {
			w := drawWorld(seed)
			w.trace = new(strings.Builder)
			w.play()
			traces[i] = w.trace.String()
			elections += len(w.leaders)
		}
		if traces[0] != traces[1] {
			at := 0
			for traces[0][at] == traces[1][at] {
				at++
			}
			t.Fatalf("seed %d differs:\n%.300s\nand\n%.300s", seed, traces[0][max(0, at-200):], traces[1][max(0, at-200):])
		}
		joins += strings.Count(traces[0], "joined again")
		swaps += strings.Count(traces[0], "voters change [step=demote")
	}
	if elections == 0 || joins == 0 || swaps == 0 {
		t.Errorf("%d elections, %d returns, %d votes taken: nothing is shown by that", elections, joins, swaps)
	}
}
