package experiment

import (
	"math"
	"slices"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/bv95"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/ideal"
	"github.com/kgate/kgate/lab/protocol/paper"
	"github.com/kgate/kgate/lab/workload"
)

// The paper's setting (section 4).
const (
	paperNodes  = 100
	paperK      = 3
	paperHold   = 10 * time.Second
	paperT      = time.Second
	paperLambda = .5
	// paperWarmup is four times round: 2000 s of a round of 367 s.
	paperWarmup = 2000 * time.Second
)

// seed003 returns the experiments of the paper's sections 4 and 5.
func seed003() []*Experiment {
	quick, full := Size{Seeds: 3, Entries: 200}, Size{Seeds: 100, Entries: 2000}
	return []*Experiment{
		{
			Name: "003-fig2", Source: "seed 003, figure 2", Quick: quick, Full: full,
			About:  "mean time to the token against the request rate, LAN and WAN",
			Plots:  sweepPlots("Mean time to the token", "mean_s", "mean wait, s"),
			design: sweep, Claims: claimsMeans(),
		},
		{
			Name: "003-fig3", Source: "seed 003, figure 3", Quick: quick, Full: full,
			About:  "longest time to the token against the request rate, LAN",
			Plots:  sweepPlots("Longest time to the token", "max_s", "longest wait, s"),
			design: sweep, Claims: claimsMaxima(),
		},
		spread(),
		{
			Name: "003-fig4", Source: "seed 003, figure 4", Quick: quick, Full: full,
			About: "each node's longest time to the token, over the nodes, lambda = .5",
			Plots: []Plot{
				nodePlot("LAN"), nodePlot("WAN"),
			},
			design: nodeMaxima, Claims: claimsNodes(),
		},
		{
			Name: "003-fig5", Source: "seed 003, figure 5", Quick: quick, Full: full,
			About:  "messages per entry against the request rate",
			Plots:  sweepPlots("Messages per entry", "messages", "messages per entry"),
			design: sweep, Claims: claimsMessages(),
		},
		rewrites(), catastrophe(),
	}
}

func sweepPlots(title, figure, label string) []Plot {
	plot := func(network string) Plot {
		return Plot{
			Title: title + ", " + network, X: "lambda", Y: figure, XLabel: "lambda, requests per second and thinking node", YLabel: label,
			LogX: true, Series: []string{"protocol"}, Where: map[string][]string{"network": {network}},
		}
	}
	return []Plot{plot("LAN"), plot("WAN")}
}

func nodePlot(network string) Plot {
	return Plot{
		Title: "Longest time to the token of each node, " + network, X: "nodes_percent", Y: "max_s",
		XLabel: "share of the nodes, %", YLabel: "at most, s", Series: []string{"protocol"},
		Where: map[string][]string{"network": {network}},
	}
}

// Names in tables.
const (
	early   = "early (the paper's)"
	late    = "late"
	perfect = "ideal"
	split   = "static"
	proxyA  = "BV95 proxy A"
	proxyB  = "BV95 proxy B"
)

// ofPaper are the protocols in the paper's setting. BV95's own heuristics could
// not be had: both of its entries are proxies.
func ofPaper() []protocol.Spec {
	return []protocol.Spec{
		named(early, fairk.Paper()), named(late, fairk.Late()), named(proxyA, bv95.A()), named(proxyB, bv95.B()),
	}
}

// settings are the paper's two networks: one in which each message takes a second,
// and a WAN. The paper's King data could not be had.
func settings(l network.Latency) map[string]network.Latency {
	lan := network.Always("constant:1s", paperT)
	return map[string]network.Latency{"LAN": lan, "WAN": l.Or(network.MadeUp())}
}

var networks = []string{"LAN", "WAN"}

func paperRun(p protocol.Spec, lambda float64, entries int) lab.Config {
	return lab.Config{
		Nodes: paperNodes, K: paperK, Protocol: p, Network: network.Constant(paperT),
		Workload: workload.Config{Closed: &workload.Closed{Rate: lambda}, Hold: workload.Constant(paperHold)},
		Warmup:   paperWarmup, Entries: uint64(entries * paperNodes),
	}
}

var lambdas = []float64{.001, .0025, .005, .01, .05, .1, .5, 1}

// sweep is what figures 2, 3 and 5 look at.
func sweep(s setting) (*design, error) {
	d := &design{name: "003-sweep", keys: []string{"network", "protocol", "lambda"}, figures: standard}
	models := settings(s.Latency)
	for _, name := range networks {
		for _, p := range ofPaper() {
			for _, lambda := range lambdas {
				d.cells = append(d.cells, one(models[name], paperRun(p, lambda, s.Entries), name, p.Name, text(lambda)))
			}
		}
	}
	d.cells = append(d.cells, one(models["LAN"], paperRun(named(perfect, ideal.Spec()), 1, s.Entries), "LAN", perfect, whole))
	return d, nil
}

const (
	half  = "0.5"
	whole = "1"
)

func claimsMeans() []*Claim {
	atHalf, atOne := figure("mean_s", "LAN", early, half), figure("mean_s", "LAN", early, whole)
	var apart []func(*Table) float64 // how far a proxy is from early, at each lambda
	for _, p := range []string{proxyA, proxyB} {
		for _, lambda := range lambdas {
			ratio := over(figure("mean_s", "LAN", p, text(lambda)), figure("mean_s", "LAN", early, text(lambda)))
			apart = append(apart, func(t *Table) float64 { return math.Abs(ratio(t) - 1) })
		}
	}
	return []*Claim{
		{
			Paper: "003", Place: "4, figure 2", Says: "mean wait 355 s, stable from lambda = .5 on",
			Parts: []Part{{What: "at .5", Value: atHalf, Agrees: around(355, .01)}, {What: "at 1", Value: atOne, Agrees: around(355, .01)}},
		},
		{
			Paper: "003", Place: "4, figure 2", Says: "mean wait comparable to BV95's at every lambda",
			Parts: []Part{{What: "farthest proxy, share", Value: most(apart...), Agrees: atMost(.1), Shape: atMost(.25)}},
			Why:   "only proxies; at low rates their requests wait in one tree while the token of another is unused",
		},
		{
			Paper: "003", Place: "4, figure 2", Says: "King latencies have no huge impact on it",
			Parts: []Part{
				{What: "WAN over LAN, at .5", Value: over(figure("mean_s", "WAN", early, half), atHalf), Agrees: around(1, .1)},
				{What: "at 1", Value: over(figure("mean_s", "WAN", early, whole), atOne), Agrees: around(1, .1)},
			},
		},
		{
			Paper: "003", Place: "4", Says: "at lambda = 1 about N = 100 nodes contend", // Little's law
			Parts: []Part{{Value: func(t *Table) float64 {
				m, hold := atOne(t), paperHold.Seconds()
				return paperNodes * (m + hold) / (m + hold + 1)
			}, Agrees: around(100, .05)}},
		},
		{
			Paper: "003", Place: "4", Says: "optimal mean wait lambda N cset/k = 333 s",
			Parts: []Part{{What: "ideal line", Value: figure("mean_s", "LAN", perfect, whole), Agrees: around(333, .01), Shape: around(333, .05)}},
			Why:   "the formula has no dimension of time, and a node's own hold and thinking are no wait: N cset/k - cset - 1/lambda",
		},
	}
}

func claimsMaxima() []*Claim {
	longest := func(p string) func(*Table) float64 { return figure("max_s", "LAN", p, half) }
	spread := func(p string) func(*Table) float64 { return figure("spread_s", "LAN", p, half) }
	return []*Claim{
		{
			Paper: "003", Place: "4, figure 3", Says: "longest wait 370 s at lambda = .5",
			Parts: []Part{{Value: longest(early), Agrees: around(370, .05)}},
		},
		{
			Paper: "003", Place: "4, figure 3", Says: "BV95's longest wait about 1580 s",
			Parts: []Part{
				{What: "proxy A", Value: longest(proxyA), Agrees: around(1580, .1), Shape: between(740, 3160)},
				{What: "proxy B", Value: longest(proxyB), Agrees: around(1580, .1), Shape: between(740, 3160)},
			},
			Why: "only proxies; the quoted figure lies between them",
		},
		{
			Paper: "003", Place: "4, figure 3", Says: "longest wait more than an order of magnitude below BV95's",
			Parts: []Part{{What: "proxy B over early", Value: over(longest(proxyB), longest(early)), Agrees: atLeast(10), Shape: atLeast(2)}},
			Why:   "its own figures give 1580/370 = 4.3",
		},
		{
			Paper: "003", Place: "abstract, 6", Says: "spread an order of magnitude below BV95's",
			Parts: []Part{
				{What: "proxy A over early", Value: over(spread(proxyA), spread(early)), Agrees: atLeast(10), Shape: atLeast(2)},
				{What: "proxy B", Value: over(spread(proxyB), spread(early)), Agrees: atLeast(10), Shape: atLeast(2)},
			},
		},
	}
}

// spread is the abstract's claim, at the paper's number of requests: the spread grows with the length of a run.
func spread() *Experiment {
	return &Experiment{
		Name: "003-spread", Source: "seed 003, abstract", Quick: Size{Seeds: 3, Entries: 2000}, Full: Size{Seeds: 100, Entries: 2000},
		About: "spread of the waits against the request rate, 2000 requests per node, LAN and WAN",
		Plots: []Plot{{
			Title: "Spread of the waits, early binding", X: "lambda", Y: "spread_s", XLabel: "lambda, requests per second and thinking node", YLabel: "longest less mean wait, s",
			LogX: true, Series: []string{"network"},
		}},
		design: func(s setting) (*design, error) {
			d := &design{name: "003-spread", keys: []string{"network", "protocol", "lambda"}, figures: standard}
			models := settings(s.Latency)
			for _, name := range networks {
				for _, lambda := range spreadLambdas {
					d.cells = append(d.cells, one(models[name], paperRun(named(early, fairk.Paper()), lambda, s.Entries), name, early, text(lambda)))
				}
			}
			return d, nil
		},
		Claims: []*Claim{
			{
				Paper: "003", Place: "abstract; 4, figure 4", Says: "spread within 15 s, LAN, lambda = .5",
				Parts: []Part{{Value: figure("spread_s", "LAN", early, half), Agrees: atMost(15), Shape: atMost(30)}},
				Why:   "it grows with the length of a run: nothing balances queues that have drifted apart",
			},
			{
				Paper: "003", Place: "abstract", Says: "the same at figure 3's lower rates",
				Parts: func() (all []Part) {
					for _, lambda := range spreadLambdas[:4] {
						all = append(all, Part{What: "at " + short(lambda), Value: figure("spread_s", "LAN", early, text(lambda)), Agrees: atMost(15), Shape: atMost(30)})
					}
					return all
				}(),
				Why: "while the queues sometimes run empty they are uneven: a place in a queue is given without a look at how long it is",
			},
			{
				Paper: "003", Place: "abstract", Says: "spread within 15 s, WAN, lambda = .5",
				Parts: []Part{{Value: figure("spread_s", "WAN", early, half), Agrees: atMost(15), Shape: atMost(30)}},
				Why:   "hand-offs that take unequally long let the queues drift apart",
			},
		},
	}
}

var spreadLambdas = []float64{.0025, .005, .01, .05, .5, 1}

// nodeMaxima is figure 4: how long each node had to wait at most.
func nodeMaxima(s setting) (*design, error) {
	d := &design{
		name: "003-nodes", keys: []string{"network", "protocol", "nodes_percent"},
		figures: []Figure{{"max_s", "longest wait of a node that so many nodes do not exceed"}, {"over_mean_s", "the same less the mean of all waits"}},
	}
	models := settings(s.Latency)
	percents := []float64{0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100}
	for _, name := range networks {
		for _, p := range ofPaper() {
			c := cell{}
			for _, percent := range percents {
				c.rows = append(c.rows, []string{name, p.Name, text(percent)})
			}
			c.measure = func(seed uint64) ([][]float64, error) {
				r, err := under(models[name], paperRun(p, paperLambda, s.Entries), seed)
				if err != nil {
					return nil, err
				}
				var rows [][]float64
				for _, percent := range percents {
					q := quantile(r.NodeMax, percent/100)
					rows = append(rows, []float64{q.Seconds(), (q - r.Wait.Mean()).Seconds()})
				}
				return rows, nil
			}
			d.cells = append(d.cells, c)
		}
	}
	return d, nil
}

func claimsNodes() []*Claim {
	at := func(figureName, p, percent string) func(*Table) float64 { return figure(figureName, "LAN", p, percent) }
	return []*Claim{
		{
			Paper: "003", Place: "4, figure 4", Says: "every node's longest wait very close to 370 s",
			Parts: []Part{{What: "least", Value: at("max_s", early, "0"), Agrees: around(370, .05)}, {What: "most", Value: at("max_s", early, "100"), Agrees: around(370, .05)}},
		},
		{
			Paper: "003", Place: "4, figure 4", Says: "BV95: every node's above 1300 s, 90 % 1700 s, spread 1250 s",
			Parts: []Part{
				{What: "proxy B: least", Value: at("max_s", proxyB, "0"), Agrees: atLeast(1300), Shape: atLeast(650)},
				{What: "at 90 %", Value: at("max_s", proxyB, "90"), Agrees: atLeast(1700), Shape: atLeast(850)},
				{What: "spread", Value: at("over_mean_s", proxyB, "100"), Agrees: atLeast(1250), Shape: atLeast(625)},
			},
			Why: "a proxy, in runs shorter than the paper's. Figure 3 has 1580 s as the maximum of the setting in which figure 4 has 1700 s as a percentile",
		},
	}
}

func claimsMessages() []*Claim {
	messages := func(p, lambda string) func(*Table) float64 { return figure("messages", "LAN", p, lambda) }
	proxies := most(messages(proxyA, half), messages(proxyB, half))
	return []*Claim{
		{
			Paper: "003", Place: "4, figure 5", Says: "more messages per entry than BV95",
			Parts: []Part{{What: "early over the dearer proxy", Value: over(messages(early, half), proxies), Agrees: atLeast(1)}},
		},
		{
			Paper: "003", Place: "6", Says: "the increase in messages is slight",
			Parts: []Part{{What: "early over the dearer proxy", Value: over(messages(early, half), proxies), Agrees: atMost(1.25), Shape: atMost(2)}},
			Why:   "and the copies of section 5 are not among them",
		},
	}
}

// rewrites asks what the parent pointers are good for that the paper moves when a child message or the privilege arrives.
func rewrites() *Experiment {
	return &Experiment{
		Name: "003-rewrites", Source: "seed 003, section 3.2", Quick: Size{Seeds: 2, Entries: 2000}, Full: Size{Seeds: 20, Entries: 2000},
		About: "messages per entry with and without the printed rewrites of parent pointers, LAN",
		Plots: []Plot{{
			Title: "Messages per entry, with and without rewrites", X: "lambda", Y: "messages", XLabel: "lambda, requests per second and thinking node", YLabel: "messages per entry",
			LogX: true, Series: []string{"protocol"},
		}},
		design: func(s setting) (*design, error) {
			d := &design{name: "003-rewrites", keys: []string{"protocol", "lambda"}, figures: append(slices.Clone(standard), Figure{"messages_over", "messages over those without rewrites"})}
			protocols := []protocol.Spec{paper.Spec(plain, paper.Options{}), paper.Spec(printed, paper.Options{Rewrite: true})}
			for _, lambda := range []float64{.001, .01, .05, .5} {
				c := beside(settings(s.Latency)["LAN"], nil, protocols, func(p protocol.Spec) lab.Config { return paperRun(p, lambda, s.Entries) }, func(row, first []float64) []float64 {
					return []float64{value(row, "messages") / value(first, "messages")}
				})
				for i := range c.rows {
					c.rows[i] = append(c.rows[i], text(lambda))
				}
				d.cells = append(d.cells, c)
			}
			return d, nil
		},
		Claims: []*Claim{{
			Paper: "003", Place: "3.2", Says: "parent pointers moved on child messages shorten the way to the root",
			Parts: []Part{
				{What: "messages over those without, at .001", Value: figure("messages_over", printed, "0.001"), Agrees: atMost(1)},
				{What: "at .5", Value: figure("messages_over", printed, half), Agrees: atMost(1), Shape: atMost(1.1)},
			},
			Why: "under load the pointer moves back to an older requester",
		}},
	}
}

const (
	plain   = "path reversal only"
	printed = "as printed"
)

// rowsOf returns the rows that have this value of a key.
func (t *Table) rowsOf(key, value string) []Row {
	k := slices.Index(t.Keys, key)
	var rows []Row
	for i := range t.Rows {
		if t.Rows[i].Keys[k] == value {
			rows = append(rows, t.Rows[i])
		}
	}
	return rows
}
