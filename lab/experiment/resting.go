package experiment

import (
	"fmt"

	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

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
			d := &design{name: "resting-tokens", keys: loadKeys, figures: standard}
			protocols := []protocol.Spec{named(late, fairk.Late()), named(early, fairk.Early()), named("central", central.Spec())}
			for _, delays := range []float64{.005, .05} {
				for _, c := range restingLoads {
					pool{nodes: c.nodes, k: c.k, load: c.load, delays: delays, many: true}.design(d, protocols, s.Entries)
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
