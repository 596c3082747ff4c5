package heirs

import (
	"math/rand/v2"
	"testing"
)

// A gateway's tickets are gone when it is lost with all its p successors, and
// only then: draw by draw.
func TestLostWithAllSuccessors(t *testing.T) {
	const n = 60
	for _, p := range []int{1, 2, 4} {
		f, err := New(n, p)
		if err != nil {
			t.Fatal(err)
		}
		var order []int // the gateways' indices, as they follow each other on the ring
		for _, name := range f.ring.Names() {
			order = append(order, int(f.byName[name].node)-1)
		}
		r := rand.New(rand.NewPCG(1, uint64(p)))
		losses := 0
		for range 300 {
			gone := make([]bool, n)
			out := r.Perm(n)[:r.IntN(n)]
			for _, i := range out {
				gone[i] = true
			}
			kept, missing, err := f.Lose(gone)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for at := range order {
				alone := true
				for i := range p + 1 {
					alone = alone && gone[order[(at+i)%n]]
				}
				if alone {
					want += 2
				}
			}
			if missing != want || kept+missing != 2*len(out) {
				t.Fatalf("p = %d, %d lost: %d tickets kept, %d missing, want %d missing", p, len(out), kept, missing, want)
			}
			losses += missing
		}
		if losses == 0 {
			t.Errorf("p = %d: no loss was large enough", p)
		}
	}
}

// A fleet smaller than its replicas keeps everything as long as one is left.
func TestSmallFleet(t *testing.T) {
	f, err := New(3, 5)
	if err != nil {
		t.Fatal(err)
	}
	if kept, missing, err := f.Lose([]bool{true, false, true}); kept != 4 || missing != 0 || err != nil {
		t.Error(kept, missing, err)
	}
	if kept, missing, err := f.Lose([]bool{true, true, true}); kept != 0 || missing != 6 || err != nil {
		t.Error(kept, missing, err)
	}
}
