package lab_test

import (
	"testing"
	"time"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

// Tokens that rest away from the baton let nobody in who came much later than others
// that wait. No invariant sees that: who may take a token at rest is about a history.
func TestLateIsFair(t *testing.T) {
	const hold = time.Second
	for name, c := range map[string]struct {
		nodes, k int
		load     float64
		most     float64 // inversions per entry
	}{
		"many gateways": {100, 64, .9, 4},
		"few gateways":  {3, 16, .9, 1},
	} {
		r, err := lab.Run(lab.Config{
			Seed: 1, Nodes: c.nodes, K: c.k, Protocol: fairk.Late(), Network: network.Constant(hold / 200), Warmup: 100 * hold, Entries: 20_000,
			Workload: workload.Config{Open: &workload.Open{Rate: workload.Load(c.load, c.k, hold)}, Hold: workload.Exponential(hold)},
		})
		if err != nil {
			t.Fatal(err)
		}
		per := float64(r.Inversions) / float64(r.Entries)
		t.Logf("%s: %.2f inversions per entry", name, per)
		if per > c.most {
			t.Errorf("%s: overtaken %.2f times per entry, want at most %.0f", name, per, c.most)
		}
	}
}

// The test finds these defects.
func TestUnfairMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestLateIsFair$", Mutants: []mutant.Mutant{
		{
			Name: "home's own requests take its stock", File: "../coordinator/late.go",
			Old:    "q, ok := l.free.Next(0)\n\tif !ok || l.coordinator {",
			New:    "if q, ok := l.stock.Next(0); ok && !l.coordinator {\n\t\tl.stock.Remove(q)\n\t\tl.grant(t, q, fx)\n\t\treturn true\n\t}\n\tq, ok := l.free.Next(0)\n\tif !ok || l.coordinator {",
			Caught: "overtaken",
		},
		{
			Name: "tokens stay while a line waits for the baton", File: "../coordinator/late.go",
			Old: "case n > 0 && !waited:", New: "case n > 0:",
			Caught: "overtaken",
		},
	}}.Run(t)
}
