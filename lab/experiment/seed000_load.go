package experiment

import "slices"

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
		Claims: claimsPeerCDF(),
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

func claimsPeerCDF() []*Claim {
	at := func(replicas, p, percent string) func(*Table) float64 { return figure("load", replicas, p, percent) }
	grown := func(p string) func(*Table) float64 { return over(at("40", p, "90"), at("10", p, "90")) }
	tail := func(p string) func(*Table) float64 { return over(at("10", p, "100"), at("10", p, "90")) }
	scale := func(p string, quoted float64) Part {
		return Part{What: p, Value: at("10", p, "90"), Agrees: between(quoted/2, 2*quoted)}
	}
	return []*Claim{
		{
			Paper: "000", Place: "VI.B, figure 4; 002, p. 35", Says: "most nodes take in at most 200, 180, 700 messages per round",
			Parts: []Part{scale(e2e, 200), scale(nonE2E, 180), scale(sigma, 700)},
			Why:   "20 requests to 10 replicas are some 1500 messages per round and 1.5 per node: 200 cannot be those of one round. The ratios are another row",
		},
		{
			Paper: "000", Place: "VI.B, figure 4", Says: "so Sigma loads them 3.5 and 3.9 times as much",
			Parts: []Part{
				{What: "over E2E", Value: over(at("10", sigma, "90"), at("10", e2e, "90")), Agrees: between(3.5/1.5, 3.5*1.5), Shape: atLeast(1.5)},
				{What: "over NonE2E", Value: over(at("10", sigma, "90"), at("10", nonE2E, "90")), Agrees: between(3.9/1.5, 3.9*1.5), Shape: atLeast(1.5)},
			},
			Why: "what NonE2E saves are Sigma's polls; its requests and releases still go to every replica",
		},
		{
			Paper: "000", Place: "VI.B, figure 4", Says: "the busiest nodes have 3 to 5 times as much",
			Parts: []Part{
				{What: nonE2E, Value: tail(nonE2E), Agrees: atLeast(3), Shape: atLeast(1.5)}, {What: sigma, Value: tail(sigma), Agrees: atLeast(3), Shape: atLeast(1.5)},
			},
		},
		{
			Paper: "000", Place: "VI.B, figure 4", Says: "40 replicas instead of 10: load rises",
			Parts: []Part{{What: e2e, Value: grown(e2e), Agrees: atLeast(1.2)}, {What: sigma, Value: grown(sigma), Agrees: atLeast(1.2)}},
		},
		{
			Paper: "000", Place: "VI.B, figure 4b", Says: "40 replicas instead of 10: no effect, NonE2E",
			Parts: []Part{{Value: grown(nonE2E), Agrees: around(1, .1)}},
			Why:   "only another route to the same replica stops a route, so each replica costs its own",
		},
	}
}
