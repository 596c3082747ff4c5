package experiment

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/bv95"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/ideal"
	"github.com/kgate/kgate/lab/protocol/static"
	"github.com/kgate/kgate/lab/workload"
)

// nodeScaling asks how an entry's messages grow with the number of nodes.
func nodeScaling() *Experiment {
	plot := func(load string) Plot {
		return Plot{
			Title: "Messages per entry, " + load, X: "nodes", Y: "messages", XLabel: "nodes", YLabel: "messages per entry",
			LogX: true, Series: []string{"protocol"}, Where: map[string][]string{"load": {load}},
		}
	}
	return &Experiment{
		Name:  "n-scaling",
		About: "messages per entry from 10 to 10,000 nodes, saturated and at a load of .3",
		Quick: Size{Seeds: 2, Entries: 20_000}, Full: Size{Seeds: 10, Entries: 100_000},
		Plots: []Plot{plot(saturated), plot(light)},
		design: func(s setting) (*design, error) {
			d := &design{name: "n-scaling", keys: []string{"load", "protocol", "nodes"}, figures: standard}
			for _, load := range []string{saturated, light} {
				for _, p := range []protocol.Spec{
					named(early, fairk.Paper()), named(late, fairk.Late()), named("central", central.Spec()), named(proxyA, bv95.A()), named(proxyB, bv95.B()),
				} {
					for _, nodes := range []int{10, 32, 100, 316, 1000, 3162, 10_000} {
						d.cells = append(d.cells, one(s.Latency.or(constant("constant:1s", paperT)), scaled(p, load, nodes, s.Entries), load, p.Name, text(nodes)))
					}
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			perDecade, explained := growth(t, saturated)
			lightDecade, lightExplained := growth(t, light)
			return []Check{{
				What: "messages grow as log N", Quoted: "O(log N)",
				Found: fmt.Sprintf("saturated %.2f per decade (a line in log N explains %.0f %% of it), at load .3 %.2f (%.0f %%)",
					perDecade, 100*explained, lightDecade, 100*lightExplained),
				Agrees: explained > .95 && lightExplained > .95,
			}}
		},
		finding: func(t *Table) string {
			perDecade, _ := growth(t, saturated)
			return fmt.Sprintf("early binding sends %.1f messages per entry with 10 nodes and %.1f with 10,000, %.2f more for ten times the nodes",
				t.at("messages", saturated, early, "10").Mean, t.at("messages", saturated, early, "10000").Mean, perDecade)
		},
	}
}

const (
	saturated = "saturated"
	light     = "load .3"
)

// scaled is the paper's setting with another number of nodes. When saturated, a node
// thinks for half the time in which all the others have a turn, so that half of
// them wait; with the paper's two seconds the nodes would come round in the same
// order for thousands of requests, and the tree would hardly change. The warm-up
// is four requests of each node.
func scaled(p protocol.Spec, load string, nodes, entries int) lab.Config {
	round := time.Duration(nodes) * (paperHold + paperT) / paperK
	think := round / 2
	if load == light {
		const share = .3
		round = time.Duration(float64(nodes) * float64(paperHold) / paperK / share)
		think = round
	}
	cfg := paperRun(p, 1/think.Seconds(), entries)
	cfg.Nodes, cfg.Warmup, cfg.Entries = nodes, 4*round, uint64(max(entries, 2*nodes))
	return cfg
}

// growth returns how many more messages early binding sends for ten times the
// nodes, and how straight that line is.
func growth(t *Table, load string) (perDecade, explained float64) {
	var x, y []float64
	for _, nodes := range t.Values("nodes") {
		n, _ := strconv.ParseFloat(nodes, 64)
		x = append(x, math.Log10(n))
		y = append(y, t.at("messages", load, early, nodes).Mean)
	}
	return slope(x, y)
}

// tokenScaling asks what k does, at a load of .9.
func tokenScaling() *Experiment {
	plot := func(title, figure, label string) Plot {
		return Plot{Title: title, X: "k", Y: figure, XLabel: "k", YLabel: label, LogX: true, LogY: figure != "messages", Series: []string{"protocol"}}
	}
	return &Experiment{
		Name:  "k-scaling",
		About: "wait, spread and messages for k = 1 to 256, ten gateways, open load .9, exponential holds",
		Quick: Size{Seeds: 3, Entries: 40_000}, Full: Size{Seeds: 20, Entries: 400_000},
		Plots: []Plot{
			plot("Mean wait", "mean_s", "mean wait, s"), plot("Spread", "spread_s", "spread, s"),
			plot("Messages per entry", "messages", "messages per entry"),
		},
		design: func(s setting) (*design, error) {
			d := &design{name: "k-scaling", keys: []string{"protocol", "k"}, figures: standard}
			for _, p := range []protocol.Spec{
				named(perfect, ideal.Spec()), named("central", central.Spec()), named(late, fairk.Late()), named(early, fairk.Early()),
			} {
				for k := 1; k <= 256; k *= 2 {
					cfg := pool{nodes: gateways, k: k, load: .9}.config(p, s.Entries)
					// A longer line takes longer to come to rest, a shorter one has fewer requests.
					cfg.Warmup = max(time.Minute, 2000*gatewayHold/time.Duration(k))
					d.cells = append(d.cells, one(gatewayLatency(s.Latency), cfg, p.Name, text(k)))
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			l, i := t.at("mean_s", late, "256"), t.at("mean_s", perfect, "256")
			return []Check{{
				What: "late keeps up when k admissions per hold are more than one per delay", Quoted: "batches grow, and the baton is no bottleneck (algorithm)",
				Found: fmt.Sprintf("k = 256, 230 admissions/s at 200 delays/s: mean wait %.3f s, ideal %.3f s", l.Mean, i.Mean), Agrees: l.Mean-i.Mean < .1,
				Why: "the wait for the token on top of the ideal one is more than twenty delays",
			}}
		},
		finding: func(t *Table) string {
			return fmt.Sprintf("late binding sends %.1f messages per entry at k = 1 and %.1f at k = 256, early %.1f and %.1f; early's mean wait is %.1f times the ideal one at k = 4 and %.0f times at k = 64",
				t.at("messages", late, "1").Mean, t.at("messages", late, "256").Mean, t.at("messages", early, "1").Mean, t.at("messages", early, "256").Mean,
				t.at("mean_s", early, "4").Mean/t.at("mean_s", perfect, "4").Mean, t.at("mean_s", early, "64").Mean/t.at("mean_s", perfect, "64").Mean)
		},
	}
}

// skew asks what happens when some gateways get more than others.
func skew() *Experiment {
	const k, load = 20, .8
	plot := func(title, figure, label string) Plot {
		return Plot{Title: title, X: "skew", Y: figure, XLabel: "skew: the i-th gateway has i^-skew of the first one's load", YLabel: label, LogY: true, Series: []string{"protocol"}}
	}
	return &Experiment{
		Name:  "skew",
		About: "mean wait and spread when load is uneven over ten gateways, k = 20, open load .8, exponential holds",
		Quick: Size{Seeds: 3, Entries: 40_000}, Full: Size{Seeds: 20, Entries: 400_000},
		Plots: []Plot{plot("Mean wait", "mean_s", "mean wait, s"), plot("Spread", "spread_s", "spread, s")},
		design: func(s setting) (*design, error) {
			d := &design{name: "skew", keys: []string{"protocol", "skew"}, figures: standard}
			for _, p := range []protocol.Spec{
				named(perfect, ideal.Spec()), named("central", central.Spec()), named(late, fairk.Late()), named(early, fairk.Early()), named(split, static.Spec()),
			} {
				for _, exponent := range []float64{0, .25, .5, 1, 1.5, 2} {
					cfg := pool{nodes: gateways, k: k, load: load}.config(p, s.Entries)
					cfg.Warmup = gatewayWarm
					cfg.Workload.Open.Weights = workload.Skew(gateways, exponent)
					d.cells = append(d.cells, one(gatewayLatency(s.Latency), cfg, p.Name, text(exponent)))
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			even, uneven := t.at("mean_s", late, "0"), t.at("mean_s", late, "2")
			return []Check{{
				What: "late does not mind where requests come in", Quoted: "one line over all gateways",
				Found: fmt.Sprintf("mean wait %.3f s without skew, %.3f s with skew 2", even.Mean, uneven.Mean), Agrees: uneven.Mean < 1.3*even.Mean,
				Why: "uneven load costs more than a third of the wait",
			}}
		},
		finding: func(t *Table) string {
			return fmt.Sprintf("with skew 1 the mean wait is %.2f s under late binding and %.0f s under a static split, whose busiest gateway is overloaded and grows without end",
				t.at("mean_s", late, "1").Mean, t.at("mean_s", split, "1").Mean)
		},
	}
}
