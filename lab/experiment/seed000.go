package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/rounds"
)

// The setting of table 1 of seed 000. Its length of a round and its delays are not
// known; these let a request be answered well within its round.
const (
	peers          = 6500
	peersResources = 65
	peersReplicas  = 10
	peersRounds    = 20
	peersRequests  = 20
	peersRound     = 20 * time.Second
	peersDelay     = 100 * time.Millisecond
)

const (
	sigma      = "Sigma"
	sigmaQuiet = "Sigma, no polls"
	e2e        = "E2E"
	e2eTells   = "E2E, announced"
	nonE2E     = "NonE2E"
)

// peer is one of the protocols.
type peer struct {
	name    string
	options quorum.Options
}

// peerProtocols returns the protocols; the others are compared with the first.
func peerProtocols() []peer {
	return []peer{
		{sigma, quorum.Options{Form: quorum.Sigma, Poll: true}},
		{sigmaQuiet, quorum.Options{Form: quorum.Sigma}},
		{e2e, quorum.Options{Form: quorum.EndToEnd}},
		{e2eTells, quorum.Options{Form: quorum.EndToEnd, Announce: true}},
		{nonE2E, quorum.Options{Form: quorum.NonEndToEnd}},
	}
}

// peering is a system in rounds.
type peering struct {
	nodes, resources, replicas, requests int
}

// peersAt is the setting of table 1 with another number of nodes: resources and
// requests grow along, or the messages could not grow linearly, as the paper says.
func peersAt(nodes int) peering {
	return peering{nodes, max(1, nodes*peersResources/peers), peersReplicas, max(1, nodes*peersRequests/peers)}
}

func (p peering) config(opt quorum.Options, seed uint64) rounds.Config {
	opt.Resources, opt.Replicas = p.resources, p.replicas
	return rounds.Config{
		Seed: seed, Nodes: p.nodes, Protocol: opt, Network: network.Constant(peersDelay),
		Rounds: peersRounds, Requests: p.requests, Length: peersRound,
	}
}

var peerFigures = []Figure{
	{"messages", "messages per round"},
	{"per_request", "messages per request"},
	{"sigma_over", "Sigma's messages over these, same requests"},
	{"entries", "entries per round"},
	{"waiting", "requests that wait at the end"},
	{"tokens", "TOKEN per round"},
	{"enqueues", "ENQUEUE per round"},
	{"per_replica", "messages per round at a node with replicas"},
	{"alone_s", "time to enter when nobody else holds or waits"},
}

// peerRow returns the figures of a run beside Sigma's.
func peerRow(r, first *rounds.Result) []float64 {
	at, sum := 0.0, float64(r.Messages.Sum())
	for _, i := range r.Responsible {
		at += float64(r.Load[i])
	}
	return []float64{
		sum / peersRounds, sum / float64(r.Requests), float64(first.Messages.Sum()) / sum,
		float64(r.Entries) / peersRounds, float64(r.Waited), float64(r.Messages.Of("token")) / peersRounds, float64(r.Messages.Of("enqueue")) / peersRounds,
		at / float64(len(r.Responsible)) / peersRounds, r.Alone.Mean().Seconds(),
	}
}

// cell runs the protocols side by side.
func (p peering) cell(protocols []peer, keys ...string) cell {
	var c cell
	for _, one := range protocols {
		c.rows = append(c.rows, append(slices.Clone(keys), one.name))
	}
	c.measure = func(seed uint64) ([][]float64, error) {
		var rows [][]float64
		var first *rounds.Result
		for _, one := range protocols {
			r, err := exclusive(p.config(one.options, seed))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			if first == nil {
				first = r
			}
			rows = append(rows, peerRow(r, first))
		}
		return rows, nil
	}
	return c
}

// exclusive carries out a run in which nobody may be in beside another one.
func exclusive(cfg rounds.Config) (*rounds.Result, error) {
	r, err := rounds.Run(cfg)
	if err == nil && r.Double > 0 {
		err = fmt.Errorf("%d were let in beside another one", r.Double)
	}
	return r, err
}

func peerPlot(title, x, xLabel, y, yLabel string, only ...string) Plot {
	p := Plot{Title: title, X: x, Y: y, XLabel: xLabel, YLabel: yLabel, Series: []string{"protocol"}}
	if len(only) > 0 {
		p.Where = map[string][]string{"protocol": only}
	}
	return p
}

// seed000 returns the experiments of seeds 000 and 002, which are a paper and the
// thesis behind it.
func seed000() []*Experiment {
	quick, full := Size{Seeds: 3}, Size{Seeds: 10}
	return []*Experiment{
		{
			Name: "000-fig3a", Source: "seed 000, figure 3a and table 1; seed 002, figure 6.2.1a", Quick: Size{Seeds: 5}, Full: full,
			About: "messages against the number of nodes; resources and requests grow along",
			Plots: []Plot{
				peerPlot("Messages against nodes", "nodes", "nodes", "messages", "messages per round"),
				peerPlot("Sigma's messages over the others'", "nodes", "nodes", "sigma_over", "times", sigmaQuiet, e2e, e2eTells, nonE2E),
			},
			design: func(s setting) (*design, error) {
				d := &design{name: "000-nodes", keys: []string{"nodes", "protocol"}, figures: peerFigures}
				for _, n := range []int{650, 1300, 2600, 4550, peers} {
					d.cells = append(d.cells, peersAt(n).cell(peerProtocols(), text(n)))
				}
				return d, nil
			},
			Claims: claimsPeerNodes(),
		},
		{
			Name: "000-fig3b", Source: "seed 000, figure 3b; seed 002, figure 6.2.1b", Quick: quick, Full: full,
			About: "messages against the requests per round",
			Plots: []Plot{
				peerPlot("Messages against requests", "requests", "requests per round", "messages", "messages per round"),
				peerPlot("Sigma's messages over the others'", "requests", "requests per round", "sigma_over", "times", sigmaQuiet, e2e, e2eTells, nonE2E),
			},
			design: peerLoad, Claims: claimsPeerLoad(),
		},
		{
			Name: "000-pastry", Source: "seed 000, figure 3a; seed 002, section 3.3", Quick: quick, Full: full,
			About: "the messages of figure 3a over Chord, and over prefix routing with base 16, which the paper used",
			Plots: []Plot{
				{Title: "Messages against nodes, E2E", X: "nodes", Y: "messages", XLabel: "nodes", YLabel: "messages per round", Series: []string{"overlay"}, Where: map[string][]string{"protocol": {e2e}}},
			},
			design: func(setting) (*design, error) {
				d := &design{name: "000-pastry", keys: []string{"overlay", "nodes", "protocol"}, figures: peerFigures}
				for _, overlay := range []string{"Chord", "Pastry"} {
					protocols := []peer{peerProtocols()[0], peerProtocols()[2], peerProtocols()[4]}
					for i := range protocols {
						protocols[i].options.Prefix = overlay == "Pastry"
					}
					for _, n := range []int{650, peers} {
						d.cells = append(d.cells, peersAt(n).cell(protocols, overlay, text(n)))
					}
				}
				return d, nil
			},
			Claims: claimsPastry(),
		},
		{
			Name: "002-6.2.1c", Source: "seed 002, figure 6.2.1c", Quick: Size{Seeds: 5}, Full: full,
			About: "E2E's TOKEN and ENQUEUE messages against the requests per round, 100 nodes, 20 resources",
			Plots: []Plot{
				peerPlot("ENQUEUE against requests", "requests", "requests per round", "enqueues", "ENQUEUE per round"),
				peerPlot("TOKEN against requests", "requests", "requests per round", "tokens", "TOKEN per round"),
			},
			design: func(setting) (*design, error) {
				d := &design{name: "002-6.2.1c", keys: []string{"requests", "protocol"}, figures: peerFigures}
				for _, requests := range []int{10, 20, 40, 60, 80} {
					d.cells = append(d.cells, peering{100, 20, peersReplicas, requests}.cell(peerProtocols()[2:4], text(requests)))
				}
				return d, nil
			},
			Claims: claimsTokens(),
		},
		{
			Name: "002-6.2.2", Source: "seed 002, figure 6.2.2", Quick: quick, Full: full,
			About:  "messages at the nodes that have replicas",
			Plots:  []Plot{peerPlot("Load of a node with replicas", "requests", "requests per round", "per_replica", "messages per round")},
			design: peerLoad, Claims: claimsReplicaLoad(),
		},
		peerCDF(), peerChurn("000-fig5"), peerChurn("002-6.2.4b"),
	}
}

var peerRequests = []int{10, 20, 40, 60, 80, 100}

// peerLoad is table 1 with other numbers of requests.
func peerLoad(setting) (*design, error) {
	d := &design{name: "000-requests", keys: []string{"requests", "protocol"}, figures: peerFigures}
	for _, requests := range peerRequests {
		p := peersAt(peers)
		p.requests = requests
		d.cells = append(d.cells, p.cell(peerProtocols(), text(requests)))
	}
	return d, nil
}

// whyRatio is what lies behind the messages of the three protocols.
const whyRatio = "a request costs M routes of about half log2 N hops, and so does a RELEASE, in every protocol. E2E saves RELEASE and IAMWINNER when somebody waits and pays one more when nobody does; routes of Chord meet only in their last hops, so few requests are stopped early. How much Sigma pays is mostly its polls"

// saves are claims of so many times fewer messages than Sigma sends, at table 1.
func saves(wanted Span, keys ...string) (parts []Part) {
	for _, p := range []string{e2e, nonE2E} {
		parts = append(parts, Part{What: p, Value: figure("sigma_over", append(slices.Clone(keys), p)...), Agrees: wanted, Shape: atLeast(1.1)})
	}
	return parts
}

// straight says how much of a figure's variance a line over the nodes explains, or over their logarithm.
func straight(name, key, protocol string, log bool) func(*Table) float64 {
	return func(t *Table) float64 {
		x, y := t.numbers(key, name, protocol)
		for i := range x {
			if log {
				x[i] = math.Log(x[i])
			}
		}
		_, explained := slope(x, y)
		return explained
	}
}

func claimsPeerNodes() []*Claim {
	var linear, logs []Part
	for _, p := range []string{sigma, e2e, nonE2E} {
		linear = append(linear, Part{What: p, Value: straight("messages", "nodes", p, false), Agrees: atLeast(.99)})
		if p != sigma {
			logs = append(logs, Part{What: p, Value: straight("per_request", "nodes", p, true), Agrees: atLeast(.9)})
		}
	}
	return []*Claim{
		{Paper: "000", Place: "VI.A; 002, p. 31", Says: "messages linear in the nodes (variance explained)", Parts: linear},
		{Paper: "000", Place: "VI.A; 002, p. 31", Says: "1.5 to 2.5 times fewer messages than Sigma", Parts: saves(between(1.5, 2.5), text(peers)), Why: whyRatio},
		{Paper: "002", Place: "p. 40", Says: "2 times fewer messages than Sigma", Parts: saves(around(2, .1), text(peers)), Why: whyRatio},
		{Paper: "000", Place: "I; 002, p. 4", Says: "a request costs O(log N) messages (variance explained by log N)", Parts: logs},
		{
			Paper: "000", Place: "V.A; 002, p. 24", Says: "n pings in ten minutes detect a lost owner in 10/n", Closed: true,
			Parts: []Part{{What: "n = 5, evenly spread", Value: constantly(10. / 5), Agrees: around(2, .05)}},
		},
		{
			Paper: "002", Place: "p. 27", Says: "resets break exclusion with P = 1 - (1 - p)^M", Closed: true,
			Parts: []Part{{What: "P of a majority over that", Value: func(*Table) float64 { return quorum.Broken(10, 6, .01) / (1 - math.Pow(.99, 10)) }, Agrees: around(1, .05)}},
			Why:   "it takes a quorum of resets; the formula is the probability of one",
		},
	}
}

func claimsPeerLoad() []*Claim {
	var all []func(*Table) float64
	for _, requests := range peerRequests {
		for _, p := range []string{e2e, nonE2E} {
			one := figure("sigma_over", text(requests), p)
			all = append(all, func(t *Table) float64 { return 1 / one(t) })
		}
	}
	return []*Claim{{
		Paper: "000", Place: "VI.A; 002, p. 32", Says: "fewer messages than Sigma at every load (no number survives)",
		Parts: []Part{{What: "theirs over Sigma's at worst", Value: most(all...), Agrees: atMost(1)}},
	}}
}

func claimsPastry() []*Claim {
	at := func(overlay, p string) func(*Table) float64 { return figure("messages", overlay, text(peers), p) }
	return []*Claim{
		{Paper: "000", Place: "VI, over Pastry", Says: "1.5 to 2.5 times fewer messages than Sigma", Parts: saves(between(1.5, 2.5), "Pastry", text(peers)), Why: whyRatio},
		{
			Paper: "000", Place: "abstract", Says: "the protocols do not depend on the overlay",
			Parts: []Part{{What: "Sigma over E2E, Pastry over Chord", Value: over(over(at("Pastry", sigma), at("Pastry", e2e)), over(at("Chord", sigma), at("Chord", e2e))), Agrees: around(1, .1)}},
		},
		{
			Paper: ours, Place: "beside 000, VI", Says: "base 16 halves the messages",
			Parts: []Part{{What: "Pastry over Chord, E2E", Value: over(at("Pastry", e2e), at("Chord", e2e)), Agrees: around(.5, .1)}},
		},
	}
}

func claimsTokens() []*Claim {
	return []*Claim{
		{
			Paper: "002", Place: "p. 33", Says: "ENQUEUE linear in the requests (variance explained)",
			Parts: []Part{{Value: straight("enqueues", "requests", e2e, false), Agrees: atLeast(.95)}},
		},
		{
			Paper: "002", Place: "p. 33", Says: "TOKEN constant",
			Parts: []Part{
				{What: "80 requests over 20", Value: over(figure("tokens", "80", e2e), figure("tokens", "20", e2e)), Agrees: around(1, .25)},
				{What: "80 over 10", Value: over(figure("tokens", "80", e2e), figure("tokens", "10", e2e)), Agrees: around(1, .25), Shape: atMost(2)},
			},
			Why: "a resource that is not always held hands over less often",
		},
	}
}

func claimsReplicaLoad() []*Claim {
	at := func(p string) func(*Table) float64 { return figure("per_replica", "20", p) }
	return []*Claim{{
		Paper: "002", Place: "p. 34", Says: "E2E loads the replicas least, Sigma most",
		Parts: []Part{
			{What: "E2E over NonE2E", Value: over(at(e2e), at(nonE2E)), Agrees: atMost(1), Shape: atMost(1.1)},
			{What: "NonE2E over Sigma", Value: over(at(nonE2E), at(sigma)), Agrees: atMost(1)},
		},
		Why: "IAMWINNER goes to every replica when nobody was in line",
	}}
}

// numbers returns a key and a figure of the rows of a protocol.
func (t *Table) numbers(key, figure, protocol string) (x, y []float64) {
	for _, v := range t.Values(key) {
		var n float64
		if _, err := fmt.Sscan(v, &n); err == nil {
			x, y = append(x, n), append(y, t.at(figure, v, protocol).Mean)
		}
	}
	return x, y
}
