package experiment

import (
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

const (
	stallAt     = 10 * time.Minute
	stallWindow = time.Minute
)

// stall measures the lasting effect of one stall of one gateway. All holds are equal, which is early
// binding's best case.
func stall() *Experiment {
	return &Experiment{
		Name:  "stall",
		About: "spread minute by minute before and after one gateway stalls, once, for one hold or for five",
		Quick: Size{Seeds: 5}, Full: Size{Seeds: 50},
		Plots: []Plot{
			stallPlot("Spread after one stall of one hold", "1", "spread_s", "spread, s"),
			stallPlot("Share of overtakers after one stall of one hold", "1", "overtakes", "share"),
			stallPlot("Spread after one stall of five holds", "5", "spread_s", "spread, s"),
		},
		design: func(s setting) (*design, error) {
			d := &design{name: "stall", keys: []string{"protocol", "stall_holds", "minute"}, figures: standard}
			for _, p := range []protocol.Spec{named(early, fairk.Early()), named(late, fairk.Late()), named("central", central.Spec())} {
				for _, holds := range []int{1, 5} {
					for _, minute := range []int{-3, -1, 0, 1, 2, 5, 10, 20, 40} {
						cfg := lab.Config{
							Nodes: gateways, K: gatewayK, Protocol: p,
							Stalls:   []lab.Stall{{Node: 3, At: stallAt, For: time.Duration(holds) * gatewayHold}},
							Workload: workload.Config{Closed: &workload.Closed{Rate: .5, PerNode: 10}, Hold: workload.Constant(gatewayHold)},
							Warmup:   stallAt + time.Duration(minute)*stallWindow, Duration: stallWindow,
						}
						d.cells = append(d.cells, one(gatewayLatency(s.Latency), cfg, p.Name, text(holds), text(minute)))
					}
				}
			}
			return d, nil
		},
		Claims: []*Claim{
			{
				Paper: ours, Place: "ADR 2", Says: "early binding has no restoring force: the spread that a stall of five holds left is there after 40 minutes",
				Parts: []Part{{What: "s more than before", Value: stallLeft(early), Agrees: atLeast(2)}},
			},
			{
				Paper: ours, Place: "ADR 2", Says: "late binding recovers from it",
				Parts: []Part{{What: "s more than before", Value: stallLeft(late), Agrees: atMost(.2)}},
			},
		},
	}
}

func stallPlot(title, holds, figure, label string) Plot {
	return Plot{
		Title: title, X: "minute", Y: figure, XLabel: "minutes since the stall", YLabel: label, Series: []string{"protocol"},
		Where: map[string][]string{"stall_holds": {holds}},
	}
}

// stallLeft is how much more spread there is forty minutes after a stall of five holds.
func stallLeft(p string) func(*Table) float64 {
	return func(t *Table) float64 {
		return t.at("spread_s", p, "5", "40").Mean - t.at("spread_s", p, "5", "-1").Mean
	}
}
