package gateway

import (
	"testing"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
)

// A view tells whether a gateway was the first successor of a lost one for all the time in
// which that one could have had tickets. It cannot tell once it has forgotten losses.
func TestWitnessed(t *testing.T) {
	view := &membership.View{Members: []membership.Member{{Node: 1, Name: "gw-1"}, {Node: 2, Name: "gw-2"}, {Node: 20, Name: "gw-3"}}}
	for n := range uint64(4096) { // gw-3, again and again
		view.Lost = append(view.Lost, membership.Lost{Node: kmutex.Node(100 + 2*n), At: 101 + 2*n, Name: "gw-3"})
	}
	next := view.Ring().Successors("gw-3", 1)[0]
	for _, m := range view.Members[:2] {
		knows := witnessed(view, m, 50)
		if knows(view.Lost[9].Node) != (m.Name == next) || knows(view.Lost[0].Node) || knows(7777777) {
			t.Errorf("%s knows of what was lost later: %t, of the oldest: %t, of nobody: %t",
				m.Name, knows(view.Lost[9].Node), knows(view.Lost[0].Node), knows(7777777))
		}
	}
	if view.Lost = view.Lost[1:]; !witnessed(view, view.Members[0], 50)(102) && !witnessed(view, view.Members[1], 50)(102) {
		t.Error("nobody knows, and nothing is forgotten")
	}
}
