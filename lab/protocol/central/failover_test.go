package central_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/workload"
)

// While a majority of the first five lives the others are served again after any losses, never
// more than k at once, and without the majority nobody is.
func TestFailover(t *testing.T) {
	const lease, loss, end = 3 * time.Second, 100 * time.Second, 400 * time.Second
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := lab.Config{
			Seed: seed, Nodes: 12, K: 1 + r.IntN(3), Protocol: central.Failover(lease), Network: network.Jitter{Base: 5 * time.Millisecond, Extra: 10 * time.Millisecond},
			Warmup: loss, Duration: end - loss, Detect: time.Second,
			Workload: workload.Config{Closed: &workload.Closed{Rate: 1}, Hold: workload.Exponential(time.Second)},
		}
		lost := r.Perm(12)[:1+r.IntN(6)]
		majority := 0
		for _, i := range lost {
			at := loss + time.Duration(r.Int64N(int64(10*time.Second)))*time.Duration(r.IntN(2))
			cfg.Changes = append(cfg.Changes, lab.Change{At: at, Node: i, Kind: lab.Crash})
			if i < 5 {
				majority++
			}
		}
		result, err := lab.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, last := range result.NodeLast {
			if served := last > 300*time.Second; served != (majority <= 2) && !slices.Contains(lost, i) {
				t.Fatalf("seed %d: %v lost, node %d served: %v", seed, lost, i, served)
			}
		}
	}
}
