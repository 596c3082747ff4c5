package experiment

import (
	"fmt"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

// restingHold is the mean hold of the experiment on tokens at rest.
const restingHold = time.Second

// restingLoads are the systems of the experiment, and the most messages that an
// admission under late binding may cost there.
var restingLoads = []struct {
	nodes, k int
	load     float64 // 1: saturated
	most     float64
}{
	{3, 6, .3, .6},
	{3, 16, .3, .1},
	{10, 16, .1, .3},
	{10, 16, .3, 1.6},
	{10, 16, .5, 3},
	{10, 16, .9, 5},
	{10, 16, 1, 5.5},
	{100, 64, .3, 6},
	{100, 64, .9, 8.5},
	{100, 64, 1, 7.7},
}

// resting asks what an admission costs when free tokens stay where they were used.
func resting() *Experiment {
	return &Experiment{
		Name:  "resting-tokens",
		About: "messages and waits when free tokens stay where they were used: late binding, early binding and a central queue, by load",
		Quick: Size{Seeds: 2, Entries: 8000}, Full: Size{Seeds: 10, Entries: 50_000},
		Plots: []Plot{{
			Title: "Messages per admission, 10 gateways, k = 16", X: "load", Y: "messages", XLabel: "load (1: saturated)", YLabel: "messages per admission",
			Series: []string{"protocol"}, Where: map[string][]string{"gateways": {"10"}, "t_over_hold": {"0.005"}},
		}},
		design: func(s setting) (*design, error) {
			d := &design{name: "resting-tokens", keys: []string{"gateways", "k", "load", "t_over_hold", "protocol"}, figures: standard}
			for _, delays := range []float64{.005, .05} {
				for _, c := range restingLoads {
					for _, p := range []protocol.Spec{named(late, fairk.Late()), named(early, fairk.Early()), named("central", central.Spec())} {
						cfg := lab.Config{
							Nodes: c.nodes, K: c.k, Protocol: p, Warmup: 100 * restingHold, Entries: uint64(s.Entries),
							Workload: workload.Config{Open: &workload.Open{Rate: workload.Load(c.load, c.k, restingHold)}, Hold: workload.Exponential(restingHold)},
						}
						if c.load == 1 {
							cfg = contention{nodes: c.nodes, k: c.k, delays: delays, many: true}.config(p, s.Entries)
						}
						l := constant("", time.Duration(delays*float64(restingHold)))
						d.cells = append(d.cells, one(l, cfg, text(c.nodes), text(c.k), text(c.load), text(delays), p.Name))
					}
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			var checks []Check
			for _, c := range restingLoads {
				got := t.at("messages", text(c.nodes), text(c.k), text(c.load), "0.005", late).Mean
				checks = append(checks, Check{
					What: fmt.Sprintf("messages per admission, %d gateways, k = %d, load %v", c.nodes, c.k, c.load), Quoted: fmt.Sprintf("our aim: at most %v", c.most),
					Found: fmt.Sprintf("%.2f", got), Agrees: got <= c.most, Why: "tokens do not stay where they are used, or are looked for where none are",
				})
			}
			return checks
		},
		finding: func(t *Table) string {
			at := func(n, k, load string) float64 { return t.at("messages", n, k, load, "0.005", late).Mean }
			return fmt.Sprintf("messages per admission under late binding, load .3: %.2f with 3 gateways and k = 16, %.2f with 10 and 16, %.2f with 100 and 64; saturated: %.2f with 10 and 16",
				at("3", "16", "0.3"), at("10", "16", "0.3"), at("100", "64", "0.3"), at("10", "16", "1"))
		},
	}
}
