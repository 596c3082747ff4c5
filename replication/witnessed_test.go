package replication

import (
	"testing"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/kmutex"
)

// A gateway that is lost before its empty table has a replica leaves no unknown tickets, if its
// successor was a member before it.
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

// A gateway that was a member for a part of the time only, or not always next to the lost gateway,
// is no witness.
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

// A gateway that was away does not know what members told holders meanwhile. A gateway that came
// back in the view in which it was lost was never away, unless its replicas are older.
func TestMissed(t *testing.T) {
	for _, c := range []struct {
		what       string
		out        uint64      // of its first incarnation
		kept       kmutex.Node // the incarnation that has left its table
		self       kmutex.Node
		owner      string
		node, gone uint64 // of the owner
		want       bool
	}{
		{"back later, and the owner is there", 5, 5, 12, "gw-2", 1, 0, true},
		{"back later, and the owner was lost meanwhile", 5, 5, 12, "gw-2", 1, 11, true},
		{"back later, and the owner was lost before", 5, 5, 12, "gw-2", 1, 9, false},
		{"back later, and the owner was lost at the same time", 5, 5, 12, "gw-2", 1, 10, false},
		{"back later, and it is its own table", 5, 5, 12, "gw-1", 5, 10, false},
		{"back later, and nobody knows since when it was away", 5, 0, 12, "gw-2", 1, 9, true},
		{"back at once, and the owner is there", 4, 5, 10, "gw-2", 1, 0, false},
		{"back at once, twice", 5, 2, 10, "gw-2", 1, 0, false},
		{"back later and at once, and it had dropped nothing", 4, 2, 10, "gw-2", 1, 0, true},
		{"back later and at once, and the owner was lost before", 4, 2, 10, "gw-2", 1, 3, false},
	} {
		owner := Stay{Name: c.owner, Node: kmutex.Node(c.node), Out: c.gone}
		stays := []Stay{{Name: "gw-1", Node: 5, Out: 10}, {Name: "gw-1", Node: 2, Out: c.out}, owner}
		if got := Missed(Stay{Name: "gw-1", Node: c.self}, owner, stays, func(n kmutex.Node) bool { return n == c.kept }); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
