package experiment

import (
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
		Claims: []*Claim{{
			Paper: ours, Place: "ADR 31", Says: "messages per admission under late binding stay below our aims", Parts: []Part{{What: "worst, over its aim", Value: func(t *Table) float64 {
				worst := 0.0
				for _, c := range restingLoads {
					worst = max(worst, t.at("messages", text(c.nodes), text(c.k), text(c.load), "0.005", late).Mean/c.most)
				}
				return worst
			}, Agrees: atMost(1)}},
		}},
	}
}
