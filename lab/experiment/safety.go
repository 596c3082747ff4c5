package experiment

import (
	"errors"
	"slices"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/elmp"
	"github.com/kgate/kgate/lab/protocol/paper"
	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/protocol/token"
)

// proven is what a paper proves, or says, of its protocol.
type proven struct {
	protocol.Spec
	check.Claims
}

// provens are the papers' protocols with their misprints and gaps closed, and what each is said to survive.
func provens() []proven {
	all := []proven{
		{paper.Spec("003", paper.Options{Rewrite: true}), check.Claims{K: 3}},
		{named("001", token.Spec(check.MaxDelay)), check.Claims{K: 1, Crashes: true, Restarts: true}},
		{named("004", elmp.Spec()), check.Claims{K: 1, Leaves: true, Joins: true}},
	}
	for _, s := range quorum.Specs(64 * check.MaxDelay) {
		if s.Name == "e2e" || s.Name == "none2e" {
			all = append(all, proven{s, check.Claims{K: 1, Crashes: true, Restarts: true, Leaves: true, Joins: true}})
		}
	}
	return all
}

// safety plays random schedules, with the changes that each paper says its protocol survives.
func safety() *Experiment {
	return &Experiment{
		Name:  "safety",
		About: "random schedules of the papers' protocols, mended: more than k let in, somebody never served",
		Quick: Size{Seeds: 2, Entries: 150}, Full: Size{Seeds: 20, Entries: 1000},
		design: func(s setting) (*design, error) {
			d := &design{name: "safety", keys: []string{"protocol"}, figures: []Figure{
				{"unsafe", "share of schedules in which more than k were let in"}, {"starved", "share in which somebody was never served"},
			}}
			for _, p := range provens() {
				d.cells = append(d.cells, cell{rows: [][]string{{p.Name}}, measure: func(seed uint64) ([][]float64, error) {
					unsafe, starved := 0, 0
					for i := range s.Entries {
						err := check.Fuzz(p.Spec, p.Claims, seed<<32|uint64(i))
						switch {
						case errors.Is(err, check.ErrStarved):
							starved++
						case err != nil:
							unsafe++
						}
					}
					return [][]float64{{float64(unsafe) / float64(s.Entries), float64(starved) / float64(s.Entries)}}, nil
				}})
			}
			return d, nil
		},
		Claims: slices.Concat(
			claimProven("003", "3.4", "safety and liveness without failures, misprints mended", "003"),
			claimProven("000", "IV, V; 002, p. 27", "safety and liveness (with losses: given a lease)", "e2e", "none2e"),
			claimProven("001", "2.1, 3.1", "safety and liveness with crashes and restarts, gaps closed", "001"),
			claimProven("004", "3.1, theorem 1", "safety and liveness with joins and departures, gaps closed", "004"),
		),
	}
}

func claimProven(number, place, says string, protocols ...string) []*Claim {
	var all []func(*Table) float64
	for _, p := range protocols {
		all = append(all, figure("unsafe", p), figure("starved", p))
	}
	return []*Claim{{
		Paper: number, Place: place, Says: says,
		Parts: []Part{{What: "failing schedules", Value: most(all...), Agrees: atMost(0)}},
		Why:   "see the seed",
	}}
}
