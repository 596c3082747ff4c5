package experiment

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/bv95"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/elmp"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/ideal"
	"github.com/kgate/kgate/lab/protocol/naimi"
	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/protocol/suzukikasami"
	"github.com/kgate/kgate/lab/protocol/token"
	"github.com/kgate/kgate/lab/workload"
)

// The field's setting: saturated, with holds that vary, a message a hundredth of a
// hold, and a fifth of the nodes lost at once.
const (
	fieldHold   = time.Second
	fieldDelay  = 10 * time.Millisecond
	fieldNodes  = 32
	fieldLost   = .2
	fieldDetect = time.Second
	fieldLease  = 10 * time.Second
	lossLease   = 3 * time.Second // of kgate, and of the central queue with failover
	failover    = "central, failover"
)

var fieldSizes = []int{8, fieldNodes, 100}

// rival is a protocol of the table.
type rival struct {
	protocol.Spec
	many bool // it can have k > 1
	one  bool // and k = 1
	// early is set for kgate's own machines, whose recovery is not theirs alone: a
	// loss is played with package cluster.
	early *bool
	// frail: a loss is not only the end of service, but can let a second one in.
	frail bool
}

func rivals() []rival {
	yes, no := true, false
	all := []rival{
		{named(late, fairk.Late()), true, true, &no, false},
		{named(early, fairk.Early()), true, true, &yes, false},
		{named("central", central.Spec()), true, true, nil, false},
		{named(failover, central.Failover(lossLease)), true, true, nil, false},
		{named(perfect, ideal.Spec()), true, true, nil, false},
		{named("Naimi-Trehel", naimi.Spec()), false, true, nil, false},
		{named("ELMP", elmp.Spec()), false, true, nil, false},
		{named("Suzuki-Kasami", suzukikasami.Spec()), false, true, nil, false},
		{named("token-FD", token.Spec(0)), false, true, nil, false},
		{named(proxyA, bv95.A()), true, false, nil, false}, // with k = 1 it is Naimi-Trehel
		{named(proxyB, bv95.B()), true, true, nil, false},
	}
	for i, s := range quorum.Specs(fieldLease) {
		if s.Name != "e2e-announce" {
			all = append(all, rival{s, false, true, nil, false}, rival{named(s.Name+", no lease", quorum.Specs(0)[i]), false, true, nil, true})
		}
	}
	return all
}

// field is one table over all protocols of the lab.
func field() *Experiment {
	plot := func(title, figure, label, k string, log bool) Plot {
		return Plot{
			Title: title + ", k = " + k, X: "nodes", Y: figure, XLabel: "nodes", YLabel: label, LogX: true, LogY: log,
			Series: []string{"protocol"}, Where: map[string][]string{"k": {k}},
		}
	}
	return &Experiment{
		Name:  "field",
		About: "all protocols on the same workload: messages, waits, growth, and what is left after a fifth of the nodes is lost",
		Quick: Size{Seeds: 3, Entries: 2000}, Full: Size{Seeds: 20, Entries: 20_000},
		Plots: []Plot{
			plot("Messages per entry", "messages", "messages per entry", "1", true),
			plot("Mean wait over the ideal line's", "mean_over_ideal", "times", "1", false),
			plot("Messages per entry", "messages", "messages per entry", "6", true),
			plot("Spread", "spread_s", "spread, s", "6", true),
		},
		design: fieldDesign,
		Claims: claimsField(),
	}
}

func fieldDesign(s setting) (*design, error) {
	d := &design{
		name: "field", keys: []string{"k", "protocol", "nodes"},
		figures: append(slices.Clone(standard),
			Figure{"mean_over_ideal", "mean wait over that of the ideal line, same seed"},
			Figure{"served_after", "share of the surviving nodes that are still served after a fifth was lost"},
			Figure{"lull_s", "longest time without an entry after that"},
			Figure{"upkeep", "messages per node and second for leases, which are not among those per entry"}),
	}
	for _, k := range []int{1, 6} {
		for _, nodes := range fieldSizes {
			for _, r := range rivals() {
				if k > 1 && !r.many || k == 1 && !r.one {
					continue
				}
				d.cells = append(d.cells, cell{rows: [][]string{{text(k), r.Name, text(nodes)}}, measure: func(seed uint64) ([][]float64, error) {
					return r.measure(s, nodes, k, seed)
				}})
			}
		}
	}
	return d, nil
}

func fieldRun(p protocol.Spec, nodes, k, entries int) lab.Config {
	round := time.Duration(nodes) * fieldHold / time.Duration(k)
	return lab.Config{
		Nodes: nodes, K: k, Protocol: p, Warmup: 3 * round, Entries: uint64(max(entries, 4*nodes)), Detect: fieldDetect,
		Workload: workload.Config{Closed: &workload.Closed{Rate: 2 / round.Seconds()}, Hold: workload.Exponential(fieldHold)},
	}
}

func (r rival) measure(s setting, nodes, k int, seed uint64) ([][]float64, error) {
	latency := s.Latency.Or(network.Always("constant:10ms", fieldDelay))
	calm, err := under(latency, fieldRun(r.Spec, nodes, k, s.Entries), seed)
	if err != nil {
		return nil, err
	}
	best, err := under(latency, fieldRun(ideal.Spec(), nodes, k, s.Entries), seed)
	if err != nil {
		return nil, err
	}
	row := figures(calm, k)
	loss := afterLoss{math.NaN(), math.NaN()}
	upkeep := math.NaN()
	if r.Name == failover {
		renewals := float64(calm.Messages.Of("renew"))
		row[slices.IndexFunc(standard, func(f Figure) bool { return f.Name == "messages" })] -= renewals / float64(calm.Entries)
		upkeep = renewals / calm.Measured.Seconds() / float64(nodes)
	}
	switch {
	case nodes != fieldNodes || r.frail || r.Name == perfect: // nothing of the ideal line is anywhere
	case r.early != nil:
		loss, upkeep, err = clusterAfterLoss(*r.early, k, seed)
	default:
		loss, err = r.afterLoss(latency, k, seed)
	}
	return [][]float64{append(row, calm.Wait.Mean().Seconds()/best.Wait.Mean().Seconds(), loss.served, loss.lull, upkeep)}, err
}

// The loss of a fifth of the nodes, at once and without notice, under the same load for all.
const (
	lossRounds = 24 // after it; who comes in during the second half is still served
	lossWarmup = 3  // before it
)

// afterLoss is the share of the survivors that is still served, and the longest time without an entry, in seconds.
type afterLoss struct{ served, lull float64 }

// victims draws the fifth of the nodes that is lost.
func victims(seed uint64) []int {
	return rand.New(rand.NewPCG(seed, 0x6c6f7373)).Perm(fieldNodes)[:fieldNodes/5]
}

// share of the survivors whose last entry is late enough.
func survivorsServed(lost []int, last []time.Duration, after time.Duration) float64 {
	served := 0
	for node, at := range last {
		if !slices.Contains(lost, node) && at > after {
			served++
		}
	}
	return float64(served) / float64(fieldNodes-len(lost))
}

func (r rival) afterLoss(l network.Latency, k int, seed uint64) (afterLoss, error) {
	cfg := fieldRun(r.Spec, fieldNodes, k, 0)
	round := cfg.Warmup / lossWarmup
	cfg.Entries, cfg.Duration = 0, lossRounds*round
	lost := victims(seed)
	for _, node := range lost {
		cfg.Changes = append(cfg.Changes, lab.Change{At: cfg.Warmup, Node: node, Kind: lab.Crash})
	}
	result, err := under(l, cfg, seed)
	if err != nil {
		return afterLoss{}, err
	}
	return afterLoss{survivorsServed(lost, result.NodeLast, cfg.Warmup+lossRounds/2*round), result.Lull.Seconds()}, nil
}

// clusterAfterLoss is the same for kgate, with its views, leases and epochs. Upkeep is what each gateway is sent per second while nobody
// asks for anything, but for the leader's beats.
func clusterAfterLoss(isEarly bool, k int, seed uint64) (loss afterLoss, upkeep float64, err error) {
	const (
		formed, begin = 4 * time.Second, 9 * time.Second
		tick          = 50 * time.Millisecond
	)
	round := time.Duration(fieldNodes) * fieldHold / time.Duration(k)
	lossAt := begin + lossWarmup*round
	end := lossAt + lossRounds*round
	lost := victims(seed)
	hold, think, draw := workload.Exponential(fieldHold), workload.Exponential(round/2), rand.New(rand.NewPCG(seed, lab.WorkloadStream))
	clients := make([]struct {
		at      *cluster.Request // nil: it thinks
		until   time.Duration
		crashed bool
	}, fieldNodes)
	last := make([]time.Duration, fieldNodes)
	entry := lossAt // the last one
	var c *cluster.Cluster
	c = cluster.New(cluster.Config{
		Seed: seed, Hosts: fieldNodes, Members: fieldNodes, K: k, Early: isEarly, Network: network.Constant(fieldDelay),
		Ask: 4 * fieldNodes * fieldDelay, Lease: lossLease,
		Due: func(uint64) {
			now := c.Now()
			for i := range clients {
				q := &clients[i]
				if now >= lossAt && !q.crashed && slices.Contains(lost, i) {
					c.Kill(i)
					q.crashed = true
				}
				switch {
				case q.crashed:
				case q.at == nil && now >= q.until:
					q.at = c.Request(i, hold.Draw(draw), 0)
				case q.at != nil && q.at.Outcome() != "":
					if q.at.Outcome() == "served" {
						last[i] = now
						if in := now - q.at.Hold; in > lossAt {
							loss.lull = max(loss.lull, (in - entry).Seconds())
							entry = max(entry, in)
						}
					}
					q.at, q.until = nil, now+think.Draw(draw)
				}
			}
			c.At(now+tick, 0)
		},
	})
	c.Watch(func(_ int, kind string) {
		if now := c.Now(); kind != "heartbeat" && kind != "alive" && now >= formed && now < begin {
			upkeep += 1 / (begin - formed).Seconds() / fieldNodes
		}
	}, func(int, string) {})
	c.At(begin, 0)
	for c.Step(end) {
		if err := c.Err(); err != nil {
			return loss, 0, err
		}
	}
	loss.lull = max(loss.lull, (end - entry).Seconds())
	loss.served = survivorsServed(lost, last, lossAt+lossRounds/2*round)
	return loss, upkeep, nil
}

func claimsField() []*Claim {
	middle := text(fieldNodes)
	at := func(name, k, p string) func(*Table) float64 { return figure(name, k, p, middle) }
	grows := func(p string) func(*Table) float64 {
		return over(figure("messages", "1", p, "100"), figure("messages", "1", p, "8"))
	}
	served := func(protocols ...string) (parts []Part) {
		for _, p := range protocols {
			parts = append(parts, Part{What: p, Value: at("served_after", "1", p), Agrees: atLeast(1)})
		}
		return parts
	}
	return []*Claim{
		{Paper: "001", Place: "2.1", Says: "whoever has asked enters though the token is lost (share served)", Parts: served("token-FD")},
		{
			Paper: "001", Place: "3.2", Says: "without crashes as fast as Suzuki-Kasami (mean wait)",
			Parts: []Part{{Value: over(at("mean_s", "1", "token-FD"), at("mean_s", "1", "Suzuki-Kasami")), Agrees: around(1, .05)}},
		},
		{Paper: "000", Place: "V; 002, p. 24", Says: "share served after a loss of a fifth", Parts: served("e2e", "none2e")},
		{
			Paper: "004", Place: "abstract, 1.3", Says: "O(log N) messages per request (100 nodes over 8)",
			Parts: []Part{{What: "ELMP", Value: grows("ELMP"), Agrees: atMost(math.Log(100) / math.Log(8))}},
		},
		{Paper: ours, Place: "guarantees", Says: "all others are served after a loss of a fifth", Parts: served(late, early)},
		{
			Paper: ours, Place: "field", Says: "the central queue with failover is beaten: k = 6, 32 nodes",
			Parts: []Part{
				{What: "mean wait over its", Value: over(at("mean_s", "6", late), at("mean_s", "6", failover)), Agrees: atMost(1)},
				{What: "spread over its", Value: over(at("spread_s", "6", late), at("spread_s", "6", failover)), Agrees: atMost(1)},
				{What: "messages over its", Value: over(at("messages", "6", late), at("messages", "6", failover)), Agrees: atMost(1)},
				{What: "s without an entry after a loss over its", Value: over(at("lull_s", "6", late), at("lull_s", "6", failover)), Agrees: atMost(1)},
			},
			Why: "a server that knows the whole line sends three messages per entry, whatever N. What kgate has for its messages is no server that all requests go through",
		},
		{
			Paper: ours, Place: "field", Says: "spread, k = 6: an order of magnitude below BV95's",
			Parts: []Part{{What: "proxy B over late", Value: over(at("spread_s", "6", proxyB), at("spread_s", "6", late)), Agrees: atLeast(10), Shape: atLeast(2)}},
			Why:   "with 32 nodes even the ideal line has more than a tenth of it, because holds vary",
		},
	}
}
