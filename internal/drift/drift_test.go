package drift

import (
	"math/rand/v2"
	"testing"
	"time"
)

// At the worst rates of the clocks the user stops before the owner goes on, for
// every term.
func TestUserStopsFirst(t *testing.T) {
	const bound = 150 * time.Millisecond
	for term := time.Second; term <= 10*time.Minute; term += 100 * time.Millisecond {
		stops, goesOn := float64(Use(term))/0.9, float64(Keep(term, bound))/1.1
		if spare := time.Duration(goesOn - stops); spare < bound/2 {
			t.Fatalf("term %v: the user stops %v before the owner goes on", term, spare)
		}
	}
}

// Term's promise fits into the time that is left, and wastes little of it.
func TestTerm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		left, bound := time.Duration(r.Int64N(int64(time.Hour))), time.Duration(r.Int64N(int64(time.Second)))
		term := Term(left, bound)
		if kept := Keep(term, bound); term > 0 && (kept > left || kept < left-time.Microsecond) {
			t.Fatalf("%v is kept of a term of %v, and %v is left", kept, term, left)
		}
	}
	if got := Term(time.Second, 2*time.Second); got != 0 {
		t.Errorf("a term of %v is promised where less than the bound is left", got)
	}
}
