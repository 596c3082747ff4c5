package experiment

import (
	"fmt"
	"slices"
)

// peerPercents are the points of the distribution over the nodes.
var peerPercents = []int{5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100}

// peerCDF is figure 4: how many messages each node takes in.
func peerCDF() *Experiment {
	var plots []Plot
	for _, p := range []string{e2e, nonE2E, sigma} {
		plots = append(plots, Plot{
			Title: "Load of the nodes, " + p, X: "percent", Y: "load", XLabel: "percent of the nodes", YLabel: "at most, messages per round",
			Series: []string{"replicas"}, Where: map[string][]string{"protocol": {p}},
		})
	}
	return &Experiment{
		Name: "000-fig4", Source: "seed 000, figure 4a, 4b, 4c and table 2; seed 002, figure 6.2.3",
		About: "messages that each node takes in, over the nodes, 10 and 40 replicas", Quick: Size{Seeds: 4}, Full: Size{Seeds: 10},
		Plots: plots,
		design: func(setting) (*design, error) {
			d := &design{name: "000-fig4", keys: []string{"replicas", "protocol", "percent"}, figures: []Figure{{"load", "messages per round of the node at this percentile"}}}
			for _, replicas := range []int{10, 40} {
				for _, one := range peerProtocols() {
					d.cells = append(d.cells, loadCell(peering{1000, 10, replicas, 20}, one))
				}
			}
			return d, nil
		},
		checks: checkPeerCDF,
		finding: func(t *Table) string {
			at := func(replicas, p, percent string) float64 { return t.at("load", replicas, p, percent).Mean }
			return fmt.Sprintf("with 10 replicas 90 %% of the nodes take in at most %.1f (E2E), %.1f (NonE2E), %.1f (Sigma) messages per round and the busiest %.0f, %.0f, %.0f",
				at("10", e2e, "90"), at("10", nonE2E, "90"), at("10", sigma, "90"), at("10", e2e, "100"), at("10", nonE2E, "100"), at("10", sigma, "100"))
		},
	}
}

func loadCell(p peering, one peer) cell {
	var c cell
	for _, percent := range peerPercents {
		c.rows = append(c.rows, []string{text(p.replicas), one.name, text(percent)})
	}
	c.measure = func(seed uint64) ([][]float64, error) {
		r, err := exclusive(p.config(one.options, seed))
		if err != nil {
			return nil, err
		}
		sorted := slices.Sorted(slices.Values(r.Load))
		var rows [][]float64
		for _, percent := range peerPercents {
			rows = append(rows, []float64{float64(sorted[(len(sorted)*percent+99)/100-1]) / peersRounds})
		}
		return rows, nil
	}
	return c
}

func checkPeerCDF(t *Table) []Check {
	at := func(replicas, p, percent string) float64 { return t.at("load", replicas, p, percent).Mean }
	grown := func(p string) float64 { return at("40", p, "90") / at("10", p, "90") }
	scale := "messages per round at a node; 20 requests to 10 replicas each are some 1500 messages per round, 1.5 per node: 200 cannot be the messages of one round. The shapes are compared"
	tail := func(p string) float64 { return at("10", p, "100") / at("10", p, "90") }
	return []Check{
		{What: "E2E, 90 % of the nodes", Quoted: "most at most 200 per round", Found: fmt.Sprintf("%.1f", at("10", e2e, "90")), Agrees: false, Why: scale},
		{
			What: "Sigma's load over the others', 90 % of the nodes", Quoted: "3.5 times E2E's, 3.9 times NonE2E's (700, 200, 180)",
			Found:  fmt.Sprintf("%.2f and %.2f times", at("10", sigma, "90")/at("10", e2e, "90"), at("10", sigma, "90")/at("10", nonE2E, "90")),
			Agrees: within(at("10", sigma, "90")/at("10", e2e, "90"), 2.5, 5) && within(at("10", sigma, "90")/at("10", nonE2E, "90"), 2.5, 5),
			Why:    "all requests and releases of NonE2E still go to every replica; what it saves are Sigma's polls",
		},
		{
			What: "a tail of busy nodes", Quoted: "NonE2E 550 to 680 (over 180), Sigma 2500 to 3500 (over 700): 3 to 5 times", Found: fmt.Sprintf("the busiest node over that at 90 %%: NonE2E %.1f, Sigma %.1f, E2E %.1f times", tail(nonE2E), tail(sigma), tail(e2e)),
			Agrees: tail(nonE2E) > 3 && tail(sigma) > 3, Why: "see the table",
		},
		{What: "E2E with 40 replicas instead of 10", Quoted: "rises", Found: fmt.Sprintf("%.2f times", grown(e2e)), Agrees: grown(e2e) > 1.2, Why: "see the table"},
		{What: "Sigma with 40 replicas instead of 10", Quoted: "rises", Found: fmt.Sprintf("%.2f times", grown(sigma)), Agrees: grown(sigma) > 1.2, Why: "see the table"},
		{
			What: "NonE2E with 40 replicas instead of 10", Quoted: "no effect: requests are stopped sooner", Found: fmt.Sprintf("%.2f times", grown(nonE2E)), Agrees: within(grown(nonE2E), .8, 1.2),
			Why: "a route is stopped only by another one to the same replica, so that each replica costs its own routes; the paper gives no reason why 40 routes should cost as much as 10",
		},
	}
}
