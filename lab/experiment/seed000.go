package experiment

import (
	"fmt"
	"slices"
	"strings"
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

// peerProtocols begin with the one that the others are compared with.
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
			checks: checkPeerNodes, finding: func(t *Table) string {
				at := func(p string) float64 { return t.at("sigma_over", text(peers), p).Mean }
				return fmt.Sprintf("with %d nodes Sigma sends %.2f times as many messages as E2E and %.2f times as many as NonE2E (paper: 1.5 to 2.5)", peers, at(e2e), at(nonE2E))
			},
		},
		{
			Name: "000-fig3b", Source: "seed 000, figure 3b; seed 002, figure 6.2.1b", Quick: quick, Full: full,
			About: "messages against the requests per round",
			Plots: []Plot{
				peerPlot("Messages against requests", "requests", "requests per round", "messages", "messages per round"),
				peerPlot("Sigma's messages over the others'", "requests", "requests per round", "sigma_over", "times", sigmaQuiet, e2e, e2eTells, nonE2E),
			},
			design: peerLoad, checks: checkPeerLoad, finding: func(t *Table) string {
				at := func(requests, p string) float64 { return t.at("sigma_over", requests, p).Mean }
				return fmt.Sprintf("from 10 to 100 requests per round Sigma sends %.2f to %.2f times as many messages as E2E, %.2f to %.2f times as many as NonE2E",
					at("10", e2e), at("100", e2e), at("10", nonE2E), at("100", nonE2E))
			},
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
			checks: checkTokens, finding: func(t *Table) string {
				at := func(figure, requests string) float64 { return t.at(figure, requests, e2e).Mean }
				return fmt.Sprintf("from 10 to 80 requests per round ENQUEUE goes from %.0f to %.0f per round, TOKEN from %.1f to %.1f",
					at("enqueues", "10"), at("enqueues", "80"), at("tokens", "10"), at("tokens", "80"))
			},
		},
		{
			Name: "002-6.2.2", Source: "seed 002, figure 6.2.2", Quick: quick, Full: full,
			About:  "messages at the nodes that have replicas",
			Plots:  []Plot{peerPlot("Load of a node with replicas", "requests", "requests per round", "per_replica", "messages per round")},
			design: peerLoad, checks: checkReplicaLoad, finding: func(t *Table) string {
				at := func(p string) float64 { return t.at("per_replica", "20", p).Mean }
				return fmt.Sprintf("with 20 requests per round a node with replicas takes in %.2f messages per round under Sigma, %.2f under E2E, %.2f under NonE2E", at(sigma), at(e2e), at(nonE2E))
			},
		},
		peerCDF(), peerChurn("000-fig5"), peerChurn("002-6.2.4b"),
	}
}

// peerLoad is table 1 with other numbers of requests.
func peerLoad(setting) (*design, error) {
	d := &design{name: "000-requests", keys: []string{"requests", "protocol"}, figures: peerFigures}
	for _, requests := range []int{10, 20, 40, 60, 80, 100} {
		p := peersAt(peers)
		p.requests = requests
		d.cells = append(d.cells, p.cell(peerProtocols(), text(requests)))
	}
	return d, nil
}

// whyRatio is what lies behind the messages of the three protocols.
const whyRatio = "a request costs M routes of about half log2 N hops, and so does a RELEASE, in every protocol. E2E saves RELEASE and IAMWINNER when somebody waits and pays one more when nobody does; routes of Chord meet only in their last hops, so few requests are stopped early. How much Sigma pays is mostly its polls"

func checkPeerNodes(t *Table) []Check {
	var checks []Check
	for _, p := range []string{e2e, nonE2E} {
		v := t.at("sigma_over", text(peers), p)
		checks = append(checks, Check{
			What: p + "'s messages, table 1", Quoted: "1.5 to 2.5 times fewer than Sigma's",
			Found: fmt.Sprintf("%.2f times fewer; %.2f than Sigma's without its polls", v.Mean,
				v.Mean/t.at("sigma_over", text(peers), sigmaQuiet).Mean),
			Agrees: within(v.Mean, 1.5, 2.5), Why: whyRatio,
		})
	}
	for _, p := range []string{sigma, e2e, nonE2E} {
		x, y := t.numbers("nodes", "messages", p)
		_, explained := slope(x, y)
		checks = append(checks, Check{
			What: p + "'s messages against nodes", Quoted: "linear", Found: fmt.Sprintf("a line explains %.4f of the variance", explained), Agrees: explained > .99,
			Why: "each route grows with log N besides",
		})
	}
	return checks
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

func checkPeerLoad(t *Table) []Check {
	var found []string
	least, most := 1e9, 0.0
	for _, requests := range t.Values("requests") {
		for _, p := range []string{e2e, nonE2E} {
			v := t.at("sigma_over", requests, p).Mean
			least, most = min(least, v), max(most, v)
			found = append(found, fmt.Sprintf("%s at %s: %.2f", p, requests, v))
		}
	}
	return []Check{{
		What: "messages, 10 to 100 requests per round", Quoted: "no number survives; by figure 3a 1.5 to 2.5 times fewer than Sigma's", Found: strings.Join(found, ", "),
		Agrees: least >= 1.5 && most <= 2.5, Why: "65 resources serve 32.5 requests per round at most. Below that E2E saves little, above it nearly everything: the line grows, waiting clients of Sigma ask again and again, and E2E's stand in the owner's line. " + whyRatio,
	}}
}

func checkTokens(t *Table) []Check {
	enqueues := t.at("enqueues", "80", e2e).Mean / t.at("enqueues", "10", e2e).Mean
	tokens := t.at("tokens", "80", e2e).Mean / t.at("tokens", "20", e2e).Mean
	x, y := t.numbers("requests", "enqueues", e2e)
	_, explained := slope(x, y)
	return []Check{
		{
			What: "ENQUEUE against requests", Quoted: "linear", Found: fmt.Sprintf("%.1f times as many for eight times the requests; a line explains %.3f", enqueues, explained), Agrees: explained > .95,
			Why: "requests that a former owner has seen once are not passed on again",
		},
		{What: "TOKEN against requests", Quoted: "constant", Found: fmt.Sprintf("%.2f times as many for four times the requests, once the resources are always held", tokens), Agrees: within(tokens, .7, 1.4), Why: "a resource that is not always held hands over less often"},
	}
}

func checkReplicaLoad(t *Table) []Check {
	at := func(p string) float64 { return t.at("per_replica", "20", p).Mean }
	return []Check{{
		What: "load of the replicas, table 1", Quoted: "E2E has the lowest of the three, Sigma the highest",
		Found:  fmt.Sprintf("Sigma %.2f, Sigma without polls %.2f, E2E %.2f, NonE2E %.2f messages per round", at(sigma), at(sigmaQuiet), at(e2e), at(nonE2E)),
		Agrees: at(e2e) < at(nonE2E) && at(nonE2E) < at(sigma), Why: "IAMWINNER goes to every replica when nobody was in line",
	}}
}
