package lab_test

import (
	"testing"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

// Tokens that rest away from the baton admit no request that came much later than others that wait. A
// request can be overtaken by requests that arrived in the ask interval before its own request for a
// place went out, 4 N T, and while messages are on their way, 15 T. No invariant checks this: the order
// of admissions is a property of a history.
func TestLateIsFair(t *testing.T) {
	const hold, delay = time.Second, time.Second / 200
	for name, c := range map[string]struct {
		nodes, k, clients int
		load              float64 // of an open stream, if there are no clients
	}{
		"more tokens than gateways":          {nodes: 3, k: 16, load: .9},
		"ten gateways":                       {nodes: 10, k: 16, load: .9},
		"ten gateways, saturated":            {nodes: 10, k: 16, clients: 5},
		"more gateways than tokens":          {nodes: 100, k: 64, load: .9},
		"each gateway's first and only":      {nodes: 100, k: 64, clients: 1},
		"a hundred gateways, saturated":      {nodes: 100, k: 64, clients: 5},
		"a hundred gateways, k just reached": {nodes: 100, k: 64, clients: 2},
	} {
		t.Run(name, func(t *testing.T) {
			load := workload.Config{Hold: workload.Exponential(hold), Open: &workload.Open{Rate: workload.Load(c.load, c.k, hold)}}
			if c.clients > 0 {
				load.Open, load.Closed = nil, &workload.Closed{Rate: 10, PerNode: c.clients}
			}
			bound := time.Duration(4*c.nodes+15) * delay
			for seed := range uint64(2) {
				r, err := lab.Run(lab.Config{
					Seed: seed + 1, Nodes: c.nodes, K: c.k, Protocol: fairk.Late(), Network: network.Constant(delay),
					Warmup: 20 * hold, Entries: 10_000, Workload: load,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("seed %d: overtaken by requests that came up to %v later, bound %v; %.2f inversions per entry",
					seed+1, r.Gap, bound, float64(r.Inversions)/float64(r.Entries))
				if r.Gap > bound {
					t.Errorf("seed %d: overtaken by a request that came %v later, want at most %v", seed+1, r.Gap, bound)
				}
			}
		})
	}
}
