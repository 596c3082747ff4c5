package suzukikasami_test

import (
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol/suzukikasami"
)

func TestExplore(t *testing.T) {
	for _, s := range []check.Scope{
		{Nodes: 2, Requests: 3, AnyOrder: true},
		{Nodes: 3, Requests: 1, AnyOrder: true},
	} {
		s.Protocol, s.K = suzukikasami.Spec(), 1
		states, err := check.Explore(s)
		t.Logf("%d nodes, %d requests each: %d states", s.Nodes, s.Requests, states)
		if err != nil {
			t.Error(err)
		}
	}
}
