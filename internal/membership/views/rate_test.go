package views

import (
	"errors"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// rated is a state with one pool, k=6, that has a rate, and three members.
func rated(t *testing.T) (*state, func(Command) error) {
	t.Helper()
	s := new(state)
	index := uint64(0)
	do := func(c Command) error {
		index++
		_, err := s.Apply(index, c)
		return err
	}
	for _, c := range []Command{
		{Found: &Found{Cluster: "c", Lease: time.Second}},
		join("a", "1"), join("b", "1"), join("c", "1"),
		{Define: &Define{Name: "p", K: 6, Binding: "late", Reclaim: "lease", Rate: Rate{Down: 600}}},
	} {
		if err := do(c); err != nil {
			t.Fatal(err)
		}
	}
	return s, do
}

// TestPartsOfTheRate: the number that a rate is divided by is never smaller than that of the
// tokens that there can be, and all divide by it before there are more tokens.
func TestPartsOfTheRate(t *testing.T) {
	s, do := rated(t)
	pool := &s.Pools[0]
	expect := func(what string, k, parts int, epoch uint64) {
		t.Helper()
		if pool.K != k || pool.Parts() != parts || pool.Epoch != epoch {
			t.Errorf("%s: k is %d, the rate is divided by %d, epoch %d; want %d, %d, %d", what, pool.K, pool.Parts(), pool.Epoch, k, parts, epoch)
		}
	}
	set := func(k int, epoch uint64) error { return do(Command{SetK: &SetK{Name: "p", K: k, Epoch: epoch}}) }

	expect("new", 6, 6, 1)
	if err := set(3, 0); err != nil {
		t.Fatal(err)
	}
	expect("lowered", 3, 6, 2)
	_ = do(Command{Recover: &Recover{Pool: "p", Epoch: 2}})
	expect("another epoch", 3, 6, 3)
	_ = do(Command{Recover: &Recover{Pool: "p", Epoch: 2, Whole: true}})
	expect("whole, but too late", 3, 6, 3)
	_ = do(Command{Recover: &Recover{Pool: "p", Epoch: 3, Whole: true}})
	expect("whole", 3, 3, 4)

	if err := set(9, 4); err != nil {
		t.Fatal(err)
	}
	expect("first step", 3, 9, 5)
	if err := set(9, 4); !errors.Is(err, ErrConflict) {
		t.Errorf("another epoch than the one in which all divide: %v", err)
	}
	_ = do(Command{Suspend: &Suspend{Nodes: []kmutex.Node{s.Members[0].Node}}})
	if err := set(9, pool.Epoch); !errors.Is(err, ErrConflict) {
		t.Errorf("while a lost gateway has a lease: %v", err)
	}
	_ = do(Command{Expire: &Expire{Nodes: []kmutex.Node{s.Lost[0].Node}}})
	if err := set(9, pool.Epoch); err != nil {
		t.Error(err)
	}
	expect("second step", 9, 9, pool.Epoch)

	epoch := pool.Epoch
	rate := Command{SetRate: &SetRate{Name: "p", Rate: Rate{Down: 300, Up: 1}}}
	if err := errors.Join(do(rate), do(rate)); err != nil || pool.Rate.Down != 300 || pool.Epoch != epoch+1 {
		t.Errorf("rate %v in epoch %d after %d: %v", pool.Rate, pool.Epoch, epoch, err)
	}
	if err := do(Command{SetRate: &SetRate{Name: "p", Rate: Rate{Up: -1}}}); !errors.Is(err, ErrCommand) {
		t.Errorf("a negative rate: %v", err)
	}

	// Without a rate nothing is divided, and k changes at once.
	if err := errors.Join(do(Command{SetRate: &SetRate{Name: "p"}}), set(20, 0)); err != nil || pool.K != 20 {
		t.Errorf("k is %d without a rate: %v", pool.K, err)
	}
}

// A change to a rate of which the tokens' parts are too small is refused, as in a file.
func TestSmallParts(t *testing.T) {
	for _, c := range []struct {
		rate Rate
		k    int
		fits bool
	}{
		{Rate{}, 1000, true},
		{Rate{Down: 6 << 10}, 6, true},
		{Rate{Down: 6<<10 - 1}, 6, false},
		{Rate{Down: 1 << 20, Up: 1}, 1, false},
		{Rate{Up: 1 << 20}, 1024, true},
		{Rate{Up: 1 << 20}, 1025, false},
	} {
		if err := c.rate.CheckParts(c.k); (err == nil) != c.fits || !c.fits && !errors.Is(err, ErrCommand) {
			t.Errorf("%+v with k = %d: %v", c.rate, c.k, err)
		}
	}
}
