package experiment

import (
	"fmt"

	"github.com/kgate/kgate/lab/ring"
)

// replicas is figure 6: what p successors that keep a node's state are good for
// when a share of all nodes is lost at once.
func replicas() *Experiment {
	return &Experiment{
		Name: "003-fig6", Source: "seed 003, figure 6",
		About: "probability that no node is lost with all its p successors",
		Quick: Size{Seeds: 5, Entries: 2000}, Full: Size{Seeds: 100, Entries: 10_000},
		Plots: []Plot{{
			Title: "State survives a loss of many nodes at once", X: "p", Y: "exact", XLabel: "backup nodes p", YLabel: "probability",
			Series: []string{"nodes", "lost_percent"},
		}},
		design: func(s setting) (*design, error) {
			d := &design{
				name: "003-fig6", keys: []string{"nodes", "lost_percent", "p"},
				figures: []Figure{
					{"exact", "probability, the lost nodes being a random share"},
					{"drawn", "the same, by drawing"},
					{"independent", "probability when each node is lost on its own"},
				},
			}
			for _, nodes := range []int{50, 100} {
				for _, percent := range []int{20, 50} {
					for p := 1; p <= 10; p++ {
						lost := nodes * percent / 100
						d.cells = append(d.cells, cell{
							rows: [][]string{{text(nodes), text(percent), text(p)}},
							measure: func(seed uint64) ([][]float64, error) {
								return [][]float64{{
									ring.Success(nodes, lost, p), ring.Simulate(nodes, lost, p, s.Entries, seed),
									ring.Independent(nodes, float64(percent)/100, p),
								}}, nil
							},
						})
					}
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			low, high := t.at("exact", "100", "20", "4").Mean, t.at("exact", "100", "50", "6").Mean
			return []Check{
				{What: "20 % lost, p = 4", Quoted: "more than .95", Found: fmt.Sprintf("%.3f", low), Agrees: low > .95},
				{
					What: "50 % lost, p = 6", Quoted: "more than .8", Found: fmt.Sprintf("%.3f", high), Agrees: high > .8,
					Why: fmt.Sprintf("p = 7 gives %.3f, and p = 6 gives %.3f if only 50 nodes have state that matters; the paper does not say what it counts as success",
						t.at("exact", "100", "50", "7").Mean, t.at("exact", "50", "50", "6").Mean),
				},
			}
		},
		finding: func(t *Table) string {
			return fmt.Sprintf("four successors outlast a loss of 20 %% with probability %.3f (paper: > .95), six one of 50 %% with %.3f (paper: > .8)",
				t.at("exact", "100", "20", "4").Mean, t.at("exact", "100", "50", "6").Mean)
		},
	}
}
