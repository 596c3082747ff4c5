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

const (
	stallAt     = 10 * time.Minute
	stallWindow = time.Minute
)

// stall asks what is left of one stall of one gateway. All holds are equal, which
// is early binding's best case.
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
		checks: func(t *Table) []Check {
			at := func(figure, protocol, holds, minute string) float64 {
				return t.at(figure, protocol, holds, minute).Mean
			}
			changed := func(protocol string) string {
				return fmt.Sprintf("after one hold: overtakes %.2f before, %.2f forty minutes later; after five: spread %.2f s before, %.2f s forty minutes later",
					at("overtakes", protocol, "1", "-1"), at("overtakes", protocol, "1", "40"), at("spread_s", protocol, "5", "-1"), at("spread_s", protocol, "5", "40"))
			}
			return []Check{
				{
					What: "early binding has no restoring force", Quoted: "the paper measures no disturbance", Found: changed(early),
					Agrees: at("spread_s", early, "5", "40") > at("spread_s", early, "5", "-1")+2*gatewayHold.Seconds(), Why: "the spread has come back by itself",
				},
				{
					What: "late binding recovers", Quoted: "the next free token serves the head", Found: changed(late),
					Agrees: at("spread_s", late, "5", "40") < at("spread_s", late, "5", "-1")+gatewayHold.Seconds()/5, Why: "the spread has not come back",
				},
			}
		},
		finding: func(t *Table) string {
			at := func(protocol, minute string) float64 { return t.at("spread_s", protocol, "5", minute).Mean }
			return fmt.Sprintf("forty minutes after one gateway stalled for five holds the spread is %.2f s under early binding (before: %.2f s) and %.2f s under late (before: %.2f s)",
				at(early, "40"), at(early, "-1"), at(late, "40"), at(late, "-1"))
		},
	}
}

func stallPlot(title, holds, figure, label string) Plot {
	return Plot{
		Title: title, X: "minute", Y: figure, XLabel: "minutes since the stall", YLabel: label, Series: []string{"protocol"},
		Where: map[string][]string{"stall_holds": {holds}},
	}
}
