package views

import (
	"fmt"
	"testing"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/kmutex"
)

// A view tells whether a gateway was the first successor of a lost one for all the time in
// which that one could have had tickets. It cannot tell once it has forgotten losses.
func TestWitnessed(t *testing.T) {
	view := &View{Members: []Member{{Node: 1, Name: "gw-1"}, {Node: 2, Name: "gw-2"}, {Node: 20, Name: "gw-3"}}}
	for n := range uint64(4096) { // gw-3, again and again
		view.Lost = append(view.Lost, Lost{Node: kmutex.Node(100 + 2*n), At: 101 + 2*n, Name: "gw-3"})
	}
	next := view.Ring().Successors("gw-3", 1)[0]
	for _, m := range view.Members[:2] {
		knows := view.witnessed(m.Node, 50)
		if knows(view.Lost[9].Node) != (m.Name == next) || knows(view.Lost[0].Node) || knows(7777777) {
			t.Errorf("%s knows of what was lost later: %t, of the oldest: %t, of nobody: %t",
				m.Name, knows(view.Lost[9].Node), knows(view.Lost[0].Node), knows(7777777))
		}
	}
	// Between gw-3 and its successor on the ring is a witness, which is on no ring.
	w := Lost{Node: 60, At: 65, Witness: true}
	for i := 0; chordring.New([]string{"gw-1", "gw-2", "gw-3", w.Name}).Successors("gw-3", 1)[0] != w.Name; i++ {
		w.Name = fmt.Sprintf("w%d", i)
	}
	m, _ := view.Named(next)
	lost := &View{Members: view.Members, Lost: []Lost{w, {Node: 61, At: 70, Name: "gw-3"}}}
	if !lost.witnessed(m.Node, 50)(61) {
		t.Error("a witness stands between a gateway and its successor")
	}
	if left := lost.ForPool(Pool{Tickets: 50}, m.Node, 1).Lost; len(left) != 1 || left[0].Node != 61 {
		t.Errorf("%v may have left tickets", left)
	}
	if view.Lost = view.Lost[1:]; !view.witnessed(1, 50)(102) && !view.witnessed(2, 50)(102) {
		t.Error("nobody knows, and nothing is forgotten")
	}
}
