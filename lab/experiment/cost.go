package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

// contention is a saturated closed system: there are always more requests than
// tokens.
type contention struct {
	nodes, k int
	// delays is T over the mean hold.
	delays float64
	// many: four times as many clients as tokens or gateways, whichever are
	// more; else one per gateway.
	many bool
}

func (c contention) tickets() string {
	if c.many {
		return "many"
	}
	return "one"
}

func (c contention) keys() []string {
	return []string{text(c.nodes), text(c.k), text(c.delays), c.tickets()}
}

var contentionKeys = []string{"gateways", "k", "t_over_hold", "tickets"}

const contentionHold = time.Second

func (c contention) latency() Latency {
	return constant("", time.Duration(c.delays*float64(contentionHold)))
}

func (c contention) config(p protocol.Spec, entries int) lab.Config {
	per := 1
	if c.many {
		per = (4*max(c.k, c.nodes) + c.nodes - 1) / c.nodes
	}
	round := time.Duration(c.nodes*per) * contentionHold / time.Duration(c.k)
	return lab.Config{
		Nodes: c.nodes, K: c.k, Protocol: p, Warmup: 3*round + 20*contentionHold, Entries: uint64(max(entries, 3*c.nodes*per)),
		Workload: workload.Config{Closed: &workload.Closed{Rate: 10, PerNode: per}, Hold: workload.Exponential(contentionHold)},
	}
}

// contentions lists the systems. One ticket per gateway contends only if there
// are more gateways than tokens.
func contentions(full bool) []contention {
	tokens := []int{3, 16, 64}
	if full {
		tokens = []int{3, 4, 8, 16, 32, 64}
	}
	var all []contention
	for _, many := range []bool{false, true} {
		for _, nodes := range []int{3, 10, 50, 200} {
			for _, k := range tokens {
				for _, delays := range []float64{.1, .01, .001} {
					if many || nodes >= 2*k {
						all = append(all, contention{nodes, k, delays, many})
					}
				}
			}
		}
	}
	return all
}

// costFigures adds what costs are counted in.
var costFigures = append(slices.Clone(standard),
	Figure{"handoff_delays", "hand-off in one-way delays"}, Figure{"spread_over_central", "spread over that of the central queue, same seed"})

// cell runs protocols side by side, the central queue first.
func (c contention) cell(protocols []protocol.Spec, entries int) cell {
	var all cell
	for _, p := range protocols {
		all.rows = append(all.rows, append(c.keys(), p.Name))
	}
	all.measure = func(seed uint64) ([][]float64, error) {
		var rows [][]float64
		for _, p := range protocols {
			r, err := under(c.latency(), c.config(p, entries), seed)
			if err != nil {
				return nil, err
			}
			row := figures(r, c.k)
			handoff := row[slices.IndexFunc(standard, func(f Figure) bool { return f.Name == "handoff_s" })]
			spread := r.Wait.Spread().Seconds()
			beside := spread
			if len(rows) > 0 {
				beside = rows[0][slices.IndexFunc(standard, func(f Figure) bool { return f.Name == "spread_s" })]
			}
			rows = append(rows, append(row, handoff/(c.delays*contentionHold.Seconds()), spread/beside))
		}
		return rows, nil
	}
	return all
}

var askFactors = []float64{0, 1, 2, 4, 8}

func lateAt(factor float64) string { return "late, " + text(factor) + " N T" }

// lateCost asks what late binding costs, and how that depends on the ask interval.
func lateCost() *Experiment {
	plot := func(title, figure, label, tickets, delays string) Plot {
		return Plot{
			Title: fmt.Sprintf("%s, k = 16, T = %s holds, %s per gateway", title, delays, tickets), X: "gateways", Y: figure, XLabel: "gateways", YLabel: label,
			LogX: true, LogY: figure == "spread_over_central", Series: []string{"protocol"},
			Where: map[string][]string{"k": {"16"}, "tickets": {tickets}, "t_over_hold": {delays}},
		}
	}
	var plots []Plot
	for _, delays := range []string{"0.1", "0.01"} {
		plots = append(plots,
			plot("Messages per entry", "messages", "messages per entry", "many", delays),
			plot("Hand-off", "handoff_delays", "hand-off, one-way delays", "many", delays),
			plot("Spread over the central queue's", "spread_over_central", "spread / central's", "many", delays))
	}
	return &Experiment{
		Name:  "late-cost",
		About: "hand-off, messages and spread of late binding by ask interval, beside early and central, saturated",
		Quick: Size{Seeds: 2, Entries: 8000}, Full: Size{Seeds: 10, Entries: 100_000},
		Plots: plots,
		design: func(s Setting) (*design, error) {
			protocols := []protocol.Spec{named("central", central.Spec()), named(early, fairk.Early())}
			for _, factor := range askFactors {
				protocols = append(protocols, fairk.Spec(lateAt(factor), fairk.Options{Ask: fairk.Times(factor)}))
			}
			d := &design{name: "late-cost", keys: append(slices.Clone(contentionKeys), "protocol"), figures: costFigures}
			for _, c := range contentions(s.Full) {
				d.cells = append(d.cells, c.cell(protocols, s.Entries))
			}
			return d, nil
		},
		checks:  func(*Table) []Check { return nil },
		finding: func(t *Table) string { return "" },
	}
}
