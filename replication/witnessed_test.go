package replication

import (
	"testing"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/kmutex"
)

// A gateway that is lost before anybody has a replica of its empty table has no tickets
// that nobody knows, if its successor was there before it.
func TestLostJustAfterItJoined(t *testing.T) {
	proven := 0
	for seed := range uint64(50) {
		w := newWorld(seed, 3, 2)
		for range w.rng.IntN(4) {
			w.change(w.pick())
		}
		if err := w.calm(); err != nil {
			t.Fatal(err)
		}
		w.join()
		fresh := w.living[w.next]
		for range w.rng.IntN(3) {
			w.change(fresh)
		}
		w.lose(fresh)
		f, err := w.form()
		if err != nil || len(f.Unknown()) > 0 {
			t.Fatalf("seed %d: unknown %v, %v", seed, f.Unknown(), err)
		}
		proven += w.witnessed
		if err := w.calm(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if proven != 50 {
		t.Errorf("%d of 50 lost gateways are known to have told nothing", proven)
	}
}

// Who was there for a while only, or not next to the lost gateway all the time, knows nothing.
func TestWitnessed(t *testing.T) {
	names := chordring.New([]string{"gw-1", "gw-2", "gw-3", "gw-4"}).Names() // in the order of the ring
	self, lost := Stay{Name: names[2], Node: 3}, Stay{Name: names[0], Node: 5, Out: 9}
	between := names[1]
	for _, c := range []struct {
		what    string
		self    kmutex.Node
		tickets uint64
		other   Stay
		want    bool
	}{
		{"nobody between", 3, 1, Stay{Name: names[3], Node: 1}, true},
		{"younger", 6, 1, Stay{Name: names[3], Node: 1}, false},
		{"younger than the lost one, older than the tickets", 6, 7, Stay{Name: names[3], Node: 1}, true},
		{"a member between them", 3, 1, Stay{Name: between, Node: 7}, false},
		{"one that was between them for a while", 3, 1, Stay{Name: between, Node: 6, Out: 7}, false},
		{"one that was between them, and left before there were tickets", 3, 8, Stay{Name: between, Node: 6, Out: 7}, true},
		{"one that left before the lost one came", 3, 1, Stay{Name: between, Node: 2, Out: 4}, true},
		{"one that came when the lost one was gone", 3, 1, Stay{Name: between, Node: 10}, true},
	} {
		s := self
		s.Node = c.self
		if got := Witnessed(s, lost, c.tickets, []Stay{s, lost, c.other}); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// A gateway that was away for a while does not know what members told meanwhile. One that
// came back in the view in which it was lost was never away.
func TestMissed(t *testing.T) {
	before := []Stay{{Name: "gw-1", Node: 2, Out: 5}, {Name: "gw-1", Node: 5, Out: 10}}
	for _, c := range []struct {
		what  string
		self  kmutex.Node
		owner Stay
		want  bool
	}{
		{"back later, and the owner is there", 12, Stay{Name: "gw-2", Node: 1}, true},
		{"back later, and the owner was lost meanwhile", 12, Stay{Name: "gw-2", Node: 1, Out: 11}, true},
		{"back later, and the owner was lost before", 12, Stay{Name: "gw-2", Node: 1, Out: 9}, false},
		{"back later, and the owner was lost at the same time", 12, Stay{Name: "gw-2", Node: 1, Out: 10}, false},
		{"back later, and it is its own table", 12, before[1], false},
		{"back at once, and the owner is there", 10, Stay{Name: "gw-2", Node: 1}, false},
	} {
		if got := Missed(Stay{Name: "gw-1", Node: c.self}, c.owner, append(before, c.owner)); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
	if !Missed(Stay{Name: "gw-1", Node: 12}, Stay{Name: "gw-2", Node: 1, Out: 9}, nil) {
		t.Error("nobody knows since when it was away, and it missed nothing")
	}
}
