package experiment

import (
	"math"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
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
						if nodes > 1000 && p.Name != early && !s.Full {
							continue // the claim is the paper's, and these take half of the time of all experiments
						}
						d.cells = append(d.cells, one(s.Latency.Or(network.Always("constant:1s", paperT)), scaled(p, load, nodes, s.Entries), load, p.Name, text(nodes)))
					}
				}
			}
			return d, nil
		},
		Claims: []*Claim{{
			Paper: "003", Place: "abstract, 3.2", Says: "messages per entry grow as log N, to N = 10,000 (variance explained)",
			Parts: []Part{{What: saturated, Value: explained(saturated), Agrees: atLeast(.95)}, {What: light, Value: explained(light), Agrees: atLeast(.95)}},
		}},
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

func explained(load string) func(*Table) float64 {
	return func(t *Table) float64 {
		_, share := growth(t, load)
		return share
	}
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
		Quick: Size{Seeds: 2, Entries: 40_000}, Full: Size{Seeds: 20, Entries: 400_000},
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
		Claims: []*Claim{{
			Paper: ours, Place: "algorithm", Says: "batches grow, and the baton is no bottleneck: k = 256, 230 admissions and 200 delays a second",
			Parts: []Part{{What: "s of wait beyond the ideal line's", Value: func(t *Table) float64 { return t.at("mean_s", late, "256").Mean - t.at("mean_s", perfect, "256").Mean }, Agrees: atMost(.1)}},
		}},
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
		Quick: Size{Seeds: 2, Entries: 40_000}, Full: Size{Seeds: 20, Entries: 400_000},
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
		Claims: []*Claim{{
			Paper: ours, Place: "README", Says: "it does not matter where requests come in (mean wait, skew 2 over none)",
			Parts: []Part{{Value: over(figure("mean_s", late, "2"), figure("mean_s", late, "0")), Agrees: atMost(1.05), Shape: atMost(1.3)}},
		}},
	}
}
