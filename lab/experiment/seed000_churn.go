package experiment

import (
	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/rounds"
)

// peersLease is eight rounds: four times as long as a resource is held in the mean.
const peersLease = 8 * peersRound

// peerChurn is what nodes cost that come and go.
func peerChurn(name string) *Experiment {
	e := &Experiment{
		Name: name, Quick: Size{Seeds: 3}, Full: Size{Seeds: 10},
		design: churnDesign, Claims: claimsChurn(),
	}
	switch name {
	case "000-fig5":
		e.Source, e.About = "seed 000, figure 5; seed 002, figure 6.2.4a", "messages against churn, half of it losses and half of it joins; requesters are spared"
		e.Plots = []Plot{peerPlot("Messages against churn", "churn", "nodes that come or go per round", "messages", "messages per round")}
	default:
		e.Source, e.About = "seed 002, figure 6.2.4b", "time to enter, when nobody else holds or waits, against churn"
		e.Plots = []Plot{peerPlot("Time to enter, uncontended", "churn", "nodes that come or go per round", "alone_s", "s")}
		e.Claims = claimsChurnTime()
	}
	return e
}

func churnProtocols() []peer {
	return []peer{
		{e2e, quorum.Options{Form: quorum.EndToEnd, Eager: true}},
		{nonE2E, quorum.Options{Form: quorum.NonEndToEnd, Eager: true}},
		{e2e + ", abstains", quorum.Options{Form: quorum.EndToEnd}},
	}
}

var churnFigures = []Figure{
	{"messages", "messages per round"},
	{"alone_s", "time to enter when nobody else holds or waits"},
	{"alone_p99_s", "that 99 % of these do not exceed"},
	{"entries", "entries per round"},
	{"double", "entries beside another owner, in the whole run"},
}

func churnDesign(setting) (*design, error) {
	d := &design{name: "000-churn", keys: []string{"churn", "protocol"}, figures: churnFigures}
	for _, churn := range []int{0, 50, 100, 200} {
		for _, one := range churnProtocols() {
			d.cells = append(d.cells, cell{rows: [][]string{{text(churn), one.name}}, measure: func(seed uint64) ([][]float64, error) {
				opt := one.options
				opt.Lease = peersLease
				cfg := peersAt(peers).config(opt, seed)
				cfg.Churn = churn
				r, err := rounds.Run(cfg)
				if err != nil {
					return nil, err
				}
				return [][]float64{{
					float64(r.Messages.Sum()) / peersRounds, r.Alone.Mean().Seconds(), r.Alone.Quantile(.99).Seconds(),
					float64(r.Entries) / peersRounds, float64(r.Double),
				}}, nil
			}})
		}
	}
	return d, nil
}

func claimsChurn() []*Claim {
	var parts []Part
	double := make([]func(*Table) float64, 0, 4)
	for _, p := range []string{e2e, nonE2E} {
		parts = append(parts, Part{What: p, Value: func(t *Table) float64 {
			at := func(churn string) float64 { return t.at("messages", churn, p).Mean }
			return (at("200") - at("50")) / 150 / ((at("50") - at("0")) / 50)
		}, Agrees: atMost(.5)})
	}
	for _, churn := range []string{"0", "50", "100", "200"} {
		double = append(double, figure("double", churn, e2e+", abstains"))
	}
	return []*Claim{
		{
			Paper: "000", Place: "VI.C, figure 5; 002, p. 38", Says: "messages grow with churn, later much slower (later slope over first)",
			Parts: parts, Why: "routes are mended where a node was lost on them, so the cost is proportional to the losses. What the overlay sends is not counted",
		},
		{
			Paper: "000", Place: "V; 002, p. 28", Says: "failures let no two owners in (here new replicas abstain for a lease)",
			Parts: []Part{{What: "double entries", Value: most(double...), Agrees: atMost(0)}},
		},
	}
}

func claimsChurnTime() []*Claim {
	at := func(churn string) func(*Table) float64 { return figure("alone_s", churn, e2e) }
	return []*Claim{{
		Paper: "002", Place: "p. 39", Says: "alone, a node enters after 3 s, with churn 7.5 s: 2.5 times",
		Parts: []Part{{Value: over(at("200"), at("0")), Agrees: around(2.5, .1), Shape: atLeast(1.05)}},
		Why:   "the overlay here is repaired at once; the paper's time is that of Pastry finding other routes",
	}}
}
