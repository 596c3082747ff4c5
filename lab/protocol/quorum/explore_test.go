package quorum

import (
	"fmt"
	"testing"

	"github.com/kgate/kgate/lab/check"
)

// In every order of events of small systems nobody is let in beside another one, and
// everybody can be served. Links keep their messages in order. There is one replica,
// and timers run out at any time; or there are three, and timers run out while no
// message is on its way.
func TestExplore(t *testing.T) {
	forms := map[string]Options{
		"sigma": {Form: Sigma}, "e2e": {Form: EndToEnd}, "e2e announced": {Form: EndToEnd, Announce: true}, "none2e": {Form: NonEndToEnd},
	}
	for name, opt := range forms {
		for _, c := range []check.Scope{
			{Nodes: 2, Requests: 1, Bounded: true}, // and three replicas
			{Nodes: 3, Requests: 1},
			{Nodes: 2, Requests: 2},
			{Nodes: 4, Requests: 1},
		} {
			if c.Nodes == 4 && (opt.Form == EndToEnd || testing.Short()) {
				continue // End-to-End has more than a hundred thousand states
			}
			t.Run(fmt.Sprintf("%s, %d nodes, %d requests", name, c.Nodes, c.Requests), func(t *testing.T) {
				if opt.Replicas, opt.rounds = 1, 2; c.Bounded {
					opt.Replicas = 3
				}
				c.Protocol, c.K = spec(name, "", opt), 1
				states, err := check.Explore(c)
				t.Logf("%d states", states)
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
