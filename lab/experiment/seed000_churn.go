package experiment

import (
	"fmt"

	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/rounds"
)

// peersLease is eight rounds: four times as long as a resource is held in the mean.
const peersLease = 8 * peersRound

// peerChurn is what nodes cost that come and go.
func peerChurn(name string) *Experiment {
	e := &Experiment{
		Name: name, Quick: Size{Seeds: 3}, Full: Size{Seeds: 10},
		design: churnDesign,
		checks: checkChurn, finding: findChurn,
	}
	switch name {
	case "000-fig5":
		e.Source, e.About = "seed 000, figure 5; seed 002, figure 6.2.4a", "messages against churn, half of it losses and half of it joins; requesters are spared"
		e.Plots = []Plot{peerPlot("Messages against churn", "churn", "nodes that come or go per round", "messages", "messages per round")}
	default:
		e.Source, e.About = "seed 002, figure 6.2.4b", "time to enter, when nobody else holds or waits, against churn"
		e.Plots = []Plot{peerPlot("Time to enter, uncontended", "churn", "nodes that come or go per round", "alone_s", "s")}
		e.checks, e.finding = checkChurnTime, findChurnTime
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

func checkChurn(t *Table) []Check {
	var checks []Check
	for _, p := range []string{e2e, nonE2E} {
		at := func(churn string) float64 { return t.at("messages", churn, p).Mean }
		first, later := (at("50")-at("0"))/50, (at("200")-at("50"))/150
		checks = append(checks, Check{
			What: p + "'s messages against churn", Quoted: "more at first, then much slower growth",
			Found:  fmt.Sprintf("%.0f per round without, %.0f with 50, %.0f with 200: %.2f more per node that comes or goes at first, %.2f later", at("0"), at("50"), at("200"), first, later),
			Agrees: first > 0 && later < first/2,
			Why:    "routes are mended where a node was lost on them, so the cost is proportional to the losses. What the overlay itself sends is not counted here",
		})
	}
	return append(checks, doubleCheck(t))
}

func doubleCheck(t *Table) Check {
	eager, abstains := 0.0, 0.0
	for _, churn := range t.Values("churn") {
		eager += t.at("double", churn, e2e).Mean + t.at("double", churn, nonE2E).Mean
		abstains += t.at("double", churn, e2e+", abstains").Mean
	}
	return Check{
		What: "two owners at once", Quoted: "\"probabilistic correctness\" with resets", Found: fmt.Sprintf("%.1f if new replicas vote at once, %.1f if they abstain for a lease", eager, abstains),
		Agrees: abstains == 0, Why: "a replica that abstains must not let a second owner in",
	}
}

func findChurn(t *Table) string {
	at := func(churn, p string) float64 { return t.at("messages", churn, p).Mean }
	return fmt.Sprintf("from no churn to 200 nodes per round messages grow by %.0f %% (E2E) and %.0f %% (NonE2E)", 100*(at("200", e2e)/at("0", e2e)-1), 100*(at("200", nonE2E)/at("0", nonE2E)-1))
}

func checkChurnTime(t *Table) []Check {
	at := func(churn, p string) float64 { return t.at("alone_s", churn, p).Mean }
	grown := at("200", e2e) / at("0", e2e)
	return []Check{{
		What: "time to enter, uncontended, E2E", Quoted: "3 s without churn, 7.5 s with 200: 2.5 times", Found: fmt.Sprintf("%.2f s, %.2f s: %.2f times; %.2f s if new replicas abstain", at("0", e2e), at("200", e2e), grown, at("200", e2e+", abstains")),
		Agrees: within(grown, 1.8, 3.2),
		Why:    "the overlay here is repaired at once and knows no timeouts, so that a loss delays only those whose message the lost node had; the paper's time is that of Pastry finding other routes",
	}, doubleCheck(t)}
}

func findChurnTime(t *Table) string {
	at := func(churn, p string) float64 { return t.at("alone_s", churn, p).Mean }
	return fmt.Sprintf("alone, a node enters after %.2f s without churn and %.2f s with 200 nodes per round (E2E; abstaining replicas: %.2f s)", at("0", e2e), at("200", e2e), at("200", e2e+", abstains"))
}
