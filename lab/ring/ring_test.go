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
