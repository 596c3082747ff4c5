package experiment

import (
	"fmt"
	"math/rand/v2"

	"github.com/kgate/kgate/lab/heirs"
	"github.com/kgate/kgate/lab/ring"
)

// productionReplicas is figure 6 again, with the replication and the heirs that
// ship in the place of a ring model.
func productionReplicas() *Experiment {
	return &Experiment{
		Name: "003-fig6-production", Source: "seed 003, figure 6",
		About: "share of losses in which no ticket is lost, with the replication and the heirs that ship",
		Quick: Size{Seeds: 3, Entries: 100}, Full: Size{Seeds: 20, Entries: 1000},
		Plots: []Plot{{
			Title: "Tickets survive a loss of many gateways at once", X: "p", Y: "survived", XLabel: "replicas p", YLabel: "share of losses with no ticket lost",
			Series: []string{"nodes", "lost_percent"},
		}},
		design: func(s setting) (*design, error) {
			d := &design{
				name: "003-fig6-production", keys: []string{"nodes", "lost_percent", "p"},
				figures: []Figure{
					{"survived", "share of losses in which no ticket is lost"},
					{"exact", "the ring model's probability, as in 003-fig6"},
					{"as_the_ring", "share of losses in which the ring model says the same"},
					{"missing_percent", "tickets lost, in percent of those that lost gateways had"},
				},
			}
			for _, nodes := range []int{100, 1000} {
				for _, percent := range []int{20, 50} {
					for p := 1; p <= 10; p++ {
						d.cells = append(d.cells, cell{
							rows: [][]string{{text(nodes), text(percent), text(p)}},
							measure: func(seed uint64) ([][]float64, error) {
								row, err := loseMany(nodes, nodes*percent/100, p, s.Entries, seed)
								return [][]float64{row}, err
							},
						})
					}
				}
			}
			return d, nil
		},
		checks: checkHeirs,
		finding: func(t *Table) string {
			return fmt.Sprintf("with what ships, four replicas outlast a loss of 20 %% of 100 gateways with probability %.2f, six one of 50 %% with %.2f (paper: > .95, > .8); of 1000 gateways with %.2f and %.2f, where %.2f %% and %.2f %% of the lost gateways' tickets are gone",
				t.at("survived", "100", "20", "4").Mean, t.at("survived", "100", "50", "6").Mean,
				t.at("survived", "1000", "20", "4").Mean, t.at("survived", "1000", "50", "6").Mean,
				t.at("missing_percent", "1000", "20", "4").Mean, t.at("missing_percent", "1000", "50", "6").Mean)
		},
	}
}

// loseMany draws losses of so many of n gateways and lets the rest recover.
func loseMany(n, lost, p, draws int, seed uint64) ([]float64, error) {
	fleet, err := heirs.New(n, p)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(seed, uint64(p)))
	gone, around := make([]bool, n), make([]bool, n)
	order := fleet.InRingOrder()
	survived, same, missing, had := 0, 0, 0, 0
	for range draws {
		clear(gone)
		for _, i := range r.Perm(n)[:lost] {
			gone[i] = true
		}
		for at, i := range order {
			around[at] = gone[i]
		}
		k, m, err := fleet.Lose(gone)
		if err != nil {
			return nil, err
		}
		if m == 0 {
			survived++
		}
		if (m == 0) == (ring.LongestRun(around) <= p) {
			same++
		}
		missing, had = missing+m, had+k+m
	}
	share := func(of int) float64 { return float64(of) / float64(draws) }
	return []float64{share(survived), ring.Success(n, lost, p), share(same), 100 * float64(missing) / float64(had)}, nil
}

func checkHeirs(t *Table) []Check {
	low, high := t.at("survived", "100", "20", "4").Mean, t.at("survived", "100", "50", "6").Mean
	least := 1.0
	for i := range t.Rows {
		least = min(least, t.at("as_the_ring", t.Rows[i].Keys...).Mean)
	}
	return []Check{
		{What: "20 % of 100 lost, p = 4", Quoted: "more than .95", Found: fmt.Sprintf("%.3f", low), Agrees: low > .95},
		{
			What: "50 % of 100 lost, p = 6", Quoted: "more than .8", Found: fmt.Sprintf("%.3f", high), Agrees: high > .8,
			Why: "as in 003-fig6: it is the ring that loses them, not the recovery",
		},
		{
			What: "loss by loss, the ring model's verdict", Quoted: "our aim: always", Found: fmt.Sprintf("in %.0f %% of the losses of the worst row", 100*least),
			Agrees: least == 1, Why: "the recovery loses a ticket of which there is a copy, or finds one of which there is none",
		},
	}
}
