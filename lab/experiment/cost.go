package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

// pool is a pool under load, with exponential holds.
type pool struct {
	nodes, k int
	// load of an open stream. 1: a closed system with more requests than tokens.
	load float64
	// delays is T over the mean hold.
	delays float64
	// many: four times as many clients in the closed system as tokens or gateways,
	// whichever are more; else one per gateway.
	many bool
}

var (
	loadKeys = []string{"gateways", "k", "load", "t_over_hold", "protocol"}
	costKeys = []string{"gateways", "k", "t_over_hold", "tickets", "protocol"}
)

// byLoad returns the values of all loadKeys but the last.
func (c pool) byLoad() []string {
	return []string{text(c.nodes), text(c.k), text(c.load), text(c.delays)}
}

// byCost returns the values of all costKeys but the last.
func (c pool) byCost() []string {
	tickets := "one"
	if c.many {
		tickets = "many"
	}
	return []string{text(c.nodes), text(c.k), text(c.delays), tickets}
}

func (c pool) latency() network.Latency {
	return network.Always("", time.Duration(c.delays*float64(gatewayHold)))
}

func (c pool) config(p protocol.Spec, entries int) lab.Config {
	cfg := lab.Config{
		Nodes: c.nodes, K: c.k, Protocol: p, Warmup: 100 * gatewayHold, Entries: uint64(entries),
		Workload: workload.Config{Hold: workload.Exponential(gatewayHold)},
	}
	if c.load < 1 {
		cfg.Workload.Open = &workload.Open{Rate: workload.Load(c.load, c.k, gatewayHold)}
		return cfg
	}
	per := 1
	if c.many {
		per = (4*max(c.k, c.nodes) + c.nodes - 1) / c.nodes
	}
	round := time.Duration(c.nodes*per) * gatewayHold / time.Duration(c.k)
	cfg.Warmup, cfg.Entries = 3*round+20*gatewayHold, uint64(max(entries, 3*c.nodes*per))
	cfg.Workload.Closed = &workload.Closed{Rate: 10, PerNode: per}
	return cfg
}

// design adds a cell for each protocol.
func (c pool) design(d *design, protocols []protocol.Spec, entries int) {
	for _, p := range protocols {
		d.cells = append(d.cells, one(c.latency(), c.config(p, entries), append(c.byLoad(), p.Name)...))
	}
}

// contentions lists the systems. One ticket per gateway contends only if there
// are more gateways than tokens.
func contentions(full bool) []pool {
	tokens := []int{3, 16, 64}
	if full {
		tokens = []int{3, 4, 8, 16, 32, 64}
	}
	var all []pool
	for _, many := range []bool{false, true} {
		for _, nodes := range []int{3, 10, 50, 200} {
			for _, k := range tokens {
				for _, delays := range []float64{.1, .01, .001} {
					if many || nodes >= 2*k {
						all = append(all, pool{nodes, k, 1, delays, many})
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

// cost runs protocols side by side, the central queue first.
func (c pool) cost(protocols []protocol.Spec, entries int) cell {
	return beside(c.latency(), c.byCost(), protocols, func(p protocol.Spec) lab.Config { return c.config(p, entries) }, func(row, first []float64) []float64 {
		return []float64{value(row, "handoff_s") / (c.delays * gatewayHold.Seconds()), value(row, "spread_s") / value(first, "spread_s")}
	})
}

var askFactors = []float64{0, 1, 2, 4, 8}

func lateAt(factor float64) string { return "late, " + text(factor) + " N T" }

// lateCost asks what late binding costs, and how that depends on the ask interval.
func lateCost() *Experiment {
	plot := func(title, figure, label, tickets, delays string) Plot {
		return Plot{
			Title: fmt.Sprintf("%s, k = 16, T = %s holds, %s tickets", title, delays, tickets), X: "gateways", Y: figure, XLabel: "gateways", YLabel: label,
			LogX: true, LogY: figure == "spread_over_central", Series: []string{"protocol"},
			Where: map[string][]string{"k": {"16"}, "tickets": {tickets}, "t_over_hold": {delays}},
		}
	}
	var plots []Plot
	for _, delays := range []string{"0.1", "0.01"} {
		plots = append(plots,
			plot("Messages per entry", "messages", "messages per entry", "many", delays),
			plot("Hand-off", "handoff_delays", "hand-off, one-way delays", "many", delays),
			plot("Spread / central's", "spread_over_central", "spread / central's", "many", delays))
	}
	return &Experiment{
		Name:  "late-cost",
		About: "hand-off, messages and spread of late binding by ask interval, beside early and central, saturated",
		Quick: Size{Seeds: 2, Entries: 8000}, Full: Size{Seeds: 10, Entries: 100_000},
		Plots: plots,
		design: func(s setting) (*design, error) {
			protocols := []protocol.Spec{named("central", central.Spec()), named(early, fairk.Early())}
			for _, factor := range askFactors {
				protocols = append(protocols, fairk.Spec(lateAt(factor), fairk.Options{Ask: fairk.Times(factor)}))
			}
			d := &design{name: "late-cost", keys: costKeys, figures: costFigures}
			for _, c := range contentions(s.Full) {
				d.cells = append(d.cells, c.cost(protocols, s.Entries))
			}
			return d, nil
		},
		Claims: claimsCost(),
	}
}

// asked sums up the effect of an ask interval with 3 and 10 gateways that have many tickets each: the
// largest ratio of the wait to the central queue's, the median ratio of the spread to the central
// queue's, and the median number of messages.
type asked struct{ wait, spread, messages float64 }

func askSummary(t *Table) []asked {
	var all []asked
	for _, factor := range askFactors {
		var sum asked
		var spreads, messages []float64
		for _, row := range t.rowsOf("protocol", lateAt(factor)) {
			if row.Keys[3] != "many" || row.Keys[0] != "3" && row.Keys[0] != "10" {
				continue
			}
			at := func(figure, protocol string) float64 {
				return t.at(figure, append(slices.Clone(row.Keys[:4]), protocol)...).Mean
			}
			sum.wait = max(sum.wait, at("mean_s", row.Keys[4])/at("mean_s", "central"))
			spreads = append(spreads, at("spread_over_central", row.Keys[4]))
			messages = append(messages, at("messages", row.Keys[4]))
		}
		slices.Sort(spreads)
		slices.Sort(messages)
		sum.spread, sum.messages = spreads[len(spreads)/2], messages[len(messages)/2]
		all = append(all, sum)
	}
	return all
}

// cheapestAsk returns the shortest interval that keeps the wait within 1.1 of the
// central queue's.
func cheapestAsk(t *Table) float64 {
	for i, a := range askSummary(t) {
		if a.wait <= 1.1 {
			return askFactors[i]
		}
	}
	return math.Inf(1)
}

func claimsCost() []*Claim {
	one := func(name, protocol string) func(*Table) float64 {
		return figure(name, "200", "64", "0.1", "one", protocol)
	}
	return []*Claim{
		{
			Paper: ours, Place: "algorithm", Says: "late's hand-off is about two delays where T is a thousandth of a hold (at worst)",
			Parts: []Part{{Value: func(t *Table) float64 {
				worst := 0.0
				for _, row := range t.rowsOf("protocol", lateAt(4)) {
					if row.Keys[2] == "0.001" {
						worst = max(worst, t.at("handoff_delays", row.Keys...).Mean)
					}
				}
				return worst
			}, Agrees: around(2, .1)}},
		},
		{
			Paper: ours, Place: "ADR 10", Says: "the shortest ask interval that costs less than a tenth of the central queue's wait is 4 N T",
			Parts: []Part{{What: "N T", Value: cheapestAsk, Agrees: around(4, .05)}},
		},
		{
			Paper: ours, Place: "choose k", Says: "late keeps tokens busy where k T is above a hold: 200 gateways with one request each, k = 64, T = .1 holds",
			Parts: []Part{{What: "late", Value: one("busy", lateAt(4)), Agrees: atLeast(.8)}, {What: "central", Value: one("busy", "central"), Agrees: atLeast(.8)}},
			Why:   "the baton makes one move per delay at best; the central queue and early binding keep them busy",
		},
	}
}
