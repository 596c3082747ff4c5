package experiment

import (
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/ideal"
	"github.com/kgate/kgate/lab/protocol/static"
	"github.com/kgate/kgate/lab/workload"
)

// The gateways' setting: what the paper's experiments are not about, many
// requests at each of a few gateways.
const (
	gateways     = 10
	gatewayK     = 16
	gatewayHold  = time.Second
	gatewayDelay = gatewayHold / 200
	gatewayWarm  = 5 * time.Minute
)

func gatewayLatency(l network.Latency) network.Latency {
	return l.Or(network.Always("constant:5ms", gatewayDelay))
}

// system is one of the workloads of the experiment.
type system struct {
	name      string
	latency   network.Latency
	config    lab.Config // without protocol
	protocols []protocol.Spec
}

var scvs = []float64{0, .25, 1, 4, 10}

// variability is the figure that the paper lacks: all of its holds are constant.
func variability() *Experiment {
	plot := func(title, figure, label, system string) Plot {
		return Plot{
			Title: title + ", " + system, X: "scv", Y: figure, XLabel: "SCV of the hold (variance over squared mean)", YLabel: label,
			LogY: true, Series: []string{"protocol"}, Where: map[string][]string{"system": {system}},
		}
	}
	return &Experiment{
		Name:  "scv",
		About: "spread and mean wait against how much the holds vary, closed and open",
		Quick: Size{Seeds: 2, Entries: 40_000}, Full: Size{Seeds: 20, Entries: 400_000},
		Plots: []Plot{
			plot("Spread", "spread_s", "spread, s", closedPaper), plot("Mean wait", "mean_s", "mean wait, s", closedGateways),
			plot("Mean wait", "mean_s", "mean wait, s", "open .5"), plot("Mean wait", "mean_s", "mean wait, s", "open .9"),
			plot("Spread", "spread_s", "spread, s", "open .9"),
		},
		design: func(s setting) (*design, error) {
			d := &design{
				name: "scv", keys: []string{"system", "scv", "protocol"},
				figures: append(slices.Clone(standard), Figure{"mean_over_ideal", "mean wait over that of the ideal line under the same arrivals"}),
			}
			for _, scv := range scvs {
				for _, system := range systems(s, scv) {
					d.cells = append(d.cells, besideIdeal(system, text(scv)))
				}
			}
			return d, nil
		},
		Claims: claimsVariability(),
	}
}

const (
	closedPaper    = "closed, N=100, k=3"
	closedGateways = "closed, 10 gateways, k=16"
)

func systems(s setting, scv float64) []system {
	run := lab.Config{Nodes: gateways, K: gatewayK, Warmup: gatewayWarm, Entries: uint64(s.Entries)}
	hold := workload.SCV(gatewayHold, scv)
	all := []protocol.Spec{
		named(perfect, ideal.Spec()), named(early, fairk.Early()), named(late, fairk.Late()),
		named("central", central.Spec()), named(split, static.Spec()),
	}
	paper := lab.Config{Nodes: paperNodes, K: paperK, Warmup: paperWarmup, Entries: uint64(s.Entries)}
	paper.Workload = workload.Config{Closed: &workload.Closed{Rate: paperLambda}, Hold: workload.SCV(paperHold, scv)}
	closed := run
	closed.Workload = workload.Config{Closed: &workload.Closed{Rate: .5, PerNode: 10}, Hold: hold}
	list := []system{
		// Three tokens cannot be split over a hundred nodes.
		{closedPaper, s.Latency.Or(network.Always("constant:100ms", paperHold/100)), paper, all[:4]},
		{closedGateways, gatewayLatency(s.Latency), closed, all},
	}
	for _, load := range []string{".5", ".8", ".9"} {
		share := map[string]float64{".5": .5, ".8": .8, ".9": .9}[load]
		open := run
		open.Workload = workload.Config{Open: &workload.Open{Rate: workload.Load(share, gatewayK, gatewayHold)}, Hold: hold}
		list = append(list, system{"open " + load, gatewayLatency(s.Latency), open, all})
	}
	return list
}

// besideIdeal runs a system under all protocols, the ideal line first.
func besideIdeal(sys system, scv string) cell {
	config := func(p protocol.Spec) lab.Config {
		cfg := sys.config
		cfg.Protocol = p
		if p.Name == split && cfg.Workload.Open != nil {
			cfg.Workload.Open = inProportion(*cfg.Workload.Open)
		}
		return cfg
	}
	return beside(sys.latency, []string{sys.name, scv}, sys.protocols, config, func(row, first []float64) []float64 {
		return []float64{value(row, "mean_s") / value(first, "mean_s")}
	})
}

// inProportion is the static split's best case: sixteen tokens over ten gateways
// are two at six of them and one at four, and each gets requests in proportion.
// With the same number of requests for each, four would be overloaded.
func inProportion(open workload.Open) *workload.Open {
	open.Weights = make([]float64, gateways)
	for i := range open.Weights {
		open.Weights[i] = float64(gatewayK / gateways)
		if i < gatewayK%gateways {
			open.Weights[i]++
		}
	}
	return &open
}

func claimsVariability() []*Claim {
	at := func(p, scv string) func(*Table) float64 { return figure("mean_over_ideal", "open .9", scv, p) }
	both := func(p string, wanted Span) []Part {
		return []Part{{What: "SCV 1", Value: at(p, "1"), Agrees: wanted}, {What: "SCV 10", Value: at(p, "10"), Agrees: wanted}}
	}
	return []*Claim{
		{
			Paper: ours, Place: "ADR 2", Says: "late binding, load .9: mean wait at most 1.15 times the ideal line's (our aim)", Parts: both(late, atMost(1.15)),
			Why: "a hand-off of two delays is a load of .01 more, and at .9 each hundredth costs a tenth of the wait: the central queue misses the aim, too",
		},
		{Paper: ours, Place: "ADR 2", Says: "late waits no longer than 1.05 times as long as the central queue", Parts: []Part{
			{What: "SCV 1", Value: over(at(late, "1"), at("central", "1")), Agrees: atMost(1.05)}, {What: "SCV 10", Value: over(at(late, "10"), at("central", "10")), Agrees: atMost(1.05)},
		}},
		{Paper: ours, Place: "ADR 2", Says: "early binding, load .9: several times the ideal line's", Parts: both(early, atLeast(4))},
		{Paper: ours, Place: "README", Says: "a static split, load .9: several times the ideal line's", Parts: both(split, atLeast(4))},
	}
}
