package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/heirs"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/paper"
	"github.com/kgate/kgate/lab/ring"
)

// theirs is the paper's way through a loss of many nodes at once; the other one is ours.
const theirs = "section 5"

// lossVoters is how many gateways vote in kgate; a majority of them has to live.
const lossVoters = 5

// catastrophe is figure 6: the paper's section 5, run, and what kgate has in its place.
func catastrophe() *Experiment {
	return &Experiment{
		Name: "003-fig6", Source: "seed 003, figure 6",
		About: "many of 100 nodes lost at once: the paper's section 5, and kgate's copies of tickets and voters",
		Quick: Size{Seeds: 3, Entries: 30}, Full: Size{Seeds: 20, Entries: 200},
		Plots: []Plot{
			{
				Title: "Share of losses that are survived", X: "p", Y: "survived", XLabel: "successors with copies, p", YLabel: "share",
				Series: []string{"system", "lost_percent"},
			},
			{
				Title: "Messages per entry with copies of every change", X: "p", Y: "messages", XLabel: "successors with copies, p", YLabel: "messages per entry",
				Series: []string{"system"}, Where: map[string][]string{"lost_percent": {"20"}},
			},
		},
		design: func(s setting) (*design, error) {
			d := &design{
				name: "003-fig6", keys: []string{"system", "lost_percent", "p"},
				figures: []Figure{
					{"survived", "share of losses after which all others are served and nothing is forgotten"},
					{"state", "share after which no state (section 5) or ticket (kgate) is forgotten"},
					{"ring", "probability that no node is lost with its p successors"},
					{"messages", "messages per entry before the loss"},
					{"mean_s", "mean wait before it"},
				},
			}
			for _, percent := range []int{20, 50} {
				for _, p := range []int{0, 2, 4, 6, 8} {
					d.cells = append(d.cells, cell{rows: [][]string{{theirs, text(percent), text(p)}}, measure: func(seed uint64) ([][]float64, error) {
						row, err := loseTheirs(percent, p, s.Entries, seed)
						return [][]float64{row}, err
					}})
					if p == 0 {
						continue
					}
					d.cells = append(d.cells, cell{rows: [][]string{{ours, text(percent), text(p)}}, measure: func(seed uint64) ([][]float64, error) {
						row, err := loseOurs(percent, p, 10*s.Entries, seed)
						return [][]float64{row}, err
					}})
				}
			}
			return d, nil
		},
		Claims: claimsLoss(),
	}
}

func claimsLoss() []*Claim {
	at := func(name, system, percent, p string) func(*Table) float64 { return figure(name, system, percent, p) }
	quorum := "with three of the five voters lost nobody is served until they are back, whatever the copies"
	return []*Claim{
		{
			Paper: "003", Place: "5, figure 6", Says: "20 % lost, p = 4: safety and liveness with > .95",
			Parts: []Part{{Value: at("survived", theirs, "20", "4"), Agrees: atLeast(.95), Shape: atLeast(.9)}},
		},
		{
			Paper: "003", Place: "5, figure 6", Says: "50 % lost, p = 6: > .8",
			Parts: []Part{{Value: at("survived", theirs, "50", "6"), Agrees: atLeast(.8), Shape: atLeast(.4)}},
			Why:   "seven neighbours in a row are lost too often; p = 8 is enough",
		},
		{
			Paper: ours, Place: "beside 003, figure 6", Says: "20 % lost, p = 4: tickets and the majority survive with > .95",
			Parts: []Part{{Value: at("survived", ours, "20", "4"), Agrees: atLeast(.95), Shape: atLeast(.9)}}, Why: quorum,
		},
		{
			Paper: ours, Place: "beside 003, figure 6", Says: "50 % lost, p = 6: > .8",
			Parts: []Part{{Value: at("survived", ours, "50", "6"), Agrees: atLeast(.8), Shape: atLeast(.4)}}, Why: quorum,
		},
		{
			Paper: "003", Place: "5", Says: "p = 6, f = .01: all backups fail with 1e-12", Closed: true,
			Parts: []Part{{What: "over that", Value: func(*Table) float64 { return math.Pow(.01, 6) / 1e-12 }, Agrees: around(1, .05)}},
		},
		{
			Paper: "003", Place: "5", Says: "copies at successors spare broadcasts (no cost given)",
			Parts: []Part{
				{What: "messages per entry, p = 4", Value: at("messages", theirs, "20", "4"), Agrees: atMost(paperNodes - 1)},
				{What: "p = 6", Value: at("messages", theirs, "20", "6"), Agrees: atMost(paperNodes - 1), Shape: atMost(2 * paperNodes)},
			},
			Why: "each change of state is an atomic broadcast to p nodes: with p = 6 an entry costs more than one broadcast to all",
		},
		{
			Paper: "003", Place: "4 with 5", Says: "mean wait 355 s, with section 5's copies",
			Parts: []Part{{What: "p = 4", Value: at("mean_s", theirs, "20", "4"), Agrees: around(355, .05), Shape: around(355, .25)}},
			Why:   "before a token goes on, and before a node enters, the copies of the change have to be confirmed: four delays more per hand-off",
		},
	}
}

// loseTheirs draws losses and plays each with the paper's algorithm and its section 5.
func loseTheirs(percent, p, draws int, seed uint64) ([]float64, error) {
	const calm, after = 1500 * time.Second, 3000 * time.Second
	r := rand.New(rand.NewPCG(seed, uint64(percent*100+p)))
	spec := paper.Spec(fmt.Sprintf("%s, p = %d", theirs, p), paper.Options{Rewrite: true, Replicas: p})
	survived, state := 0, 0
	gone := make([]bool, paperNodes)
	for draw := range draws {
		cfg := paperRun(spec, paperLambda, 0)
		cfg.Seed, cfg.Warmup, cfg.Entries, cfg.Duration, cfg.Detect = seed*1000+uint64(draw), calm, 0, after, 5*paperT
		clear(gone)
		for _, i := range r.Perm(paperNodes)[:paperNodes*percent/100] {
			gone[i] = true
			cfg.Changes = append(cfg.Changes, lab.Change{At: calm, Node: i, Kind: lab.Crash})
		}
		if ring.LongestRun(gone) <= p {
			state++
		}
		result, err := lab.Run(cfg)
		if err != nil {
			return nil, err
		}
		served := true
		for i, last := range result.NodeLast {
			served = served && (gone[i] || last > calm+after/2)
		}
		if served {
			survived++
		}
	}
	before, err := under(settings(network.Latency{})["LAN"], paperRun(spec, paperLambda, 20), seed)
	if err != nil {
		return nil, err
	}
	share := func(n int) float64 { return float64(n) / float64(draws) }
	return []float64{share(survived), share(state), ring.Success(paperNodes, paperNodes*percent/100, p), before.MessagesPerEntry(), before.Wait.Mean().Seconds()}, nil
}

// loseOurs draws losses and lets the replication and the successors that ship recover. Any five gateways vote.
func loseOurs(percent, p, draws int, seed uint64) ([]float64, error) {
	lost := paperNodes * percent / 100
	fleet, err := heirs.New(paperNodes, p)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(seed, uint64(p)))
	gone := make([]bool, paperNodes)
	survived, state := 0, 0
	for range draws {
		clear(gone)
		for _, i := range r.Perm(paperNodes)[:lost] {
			gone[i] = true
		}
		_, missing, err := fleet.Lose(gone)
		if err != nil {
			return nil, err
		}
		voters := r.Perm(paperNodes)[:lossVoters]
		voters = slices.DeleteFunc(voters, func(i int) bool { return gone[i] })
		if missing == 0 {
			state++
		}
		if missing == 0 && len(voters) > lossVoters/2 {
			survived++
		}
	}
	share := func(n int) float64 { return float64(n) / float64(draws) }
	return []float64{share(survived), share(state), ring.Success(paperNodes, lost, p), math.NaN(), math.NaN()}, nil
}
