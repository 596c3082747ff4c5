package rounds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/quorum"
	"github.com/kgate/kgate/lab/sim"
)

// Config is one run. The same configuration gives the same result.
type Config struct {
	Seed     uint64
	Nodes    int
	Protocol quorum.Options
	Network  network.Model
	// Rounds of Length each. In every round so many Requests are made, and each
	// holder releases its resource with probability one half.
	Rounds, Requests int
	Length           time.Duration
	// Churn is how many nodes come or go in each round, half of them each. Nodes
	// that wait or hold are spared, as in the source.
	Churn int
	// Losses is the probability that a round loses a node, of any state, Joins that a node joins,
	// Resets that a replica forgets everything.
	Losses, Joins, Resets float64
	// Drain goes on after the last round, without requests and faults, until
	// everybody is served, for so many rounds at most.
	Drain int
}

// Validate returns the first error of the configuration.
func (c *Config) Validate() error {
	switch {
	case c.Nodes < 1 || c.Rounds < 1 || c.Length <= 0 || c.Requests < 0:
		return errors.New("rounds: nodes, rounds and their length start at 1")
	case c.Network == nil:
		return errors.New("rounds: no network")
	case c.Churn < 0 || c.Churn/2 >= c.Nodes:
		return fmt.Errorf("rounds: a churn of %d with %d nodes", c.Churn, c.Nodes)
	case (c.Churn > 0 || c.Losses > 0 || c.Joins > 0 || c.Resets > 0) && c.Protocol.Lease == 0:
		return errors.New("rounds: nodes come and go, but votes count for ever: set a lease")
	}
	return nil
}

// Result is what a run was like.
type Result struct {
	// Messages of the rounds by kind.
	Messages meter.Counts
	// Load is how many messages each node took in.
	Load []uint64
	// Requests made, Entries, and requests that Waited at the end of the rounds.
	Requests, Entries, Waited uint64
	// Wait of all requests that entered; Alone of the requests for a resource that no other held
	// or waited for.
	Wait, Alone meter.Histogram
	// Double counts entries into a critical section that somebody was in: the
	// protocol's failures.
	Double int
	// Stuck are requests of living nodes that were not served in the drain.
	Stuck int
	// Responsible are the nodes that had a replica at the end.
	Responsible []int
}

// Run carries out one run.
func Run(cfg Config) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Protocol.Resources = max(cfg.Protocol.Resources, 1)
	spare := cfg.Churn
	if cfg.Joins > 0 {
		spare += cfg.Nodes/2 + 1
	}
	for i := range spare {
		cfg.Protocol.Absent = append(cfg.Protocol.Absent, cfg.Nodes+i)
	}
	w := &world{
		cfg: cfg, draw: rand.New(rand.NewPCG(cfg.Seed, 7)), fate: rand.New(rand.NewPCG(cfg.Seed, 8)), requests: make(map[protocol.Request]*asked),
		resources: make([]resource, cfg.Protocol.Resources),
	}
	w.result.Load = make([]uint64, cfg.Nodes+spare)
	w.Engine = sim.New(cfg.Seed, cfg.Nodes+spare, cfg.Network, w)
	for _, i := range cfg.Protocol.Absent {
		w.Kill(i)
	}
	w.fleet = quorum.New(w, protocol.Setup{Nodes: cfg.Nodes + spare, K: 1, Delay: cfg.Network.Mean()}, cfg.Protocol)
	w.After(sim.World, 0, sim.Timer{Kind: timerRound})
	for w.round <= cfg.Rounds+cfg.Drain && w.Step(1<<62) {
	}
	w.end()
	return &w.result, nil
}

// world is a run that goes on.
type world struct {
	*sim.Engine
	cfg       Config
	fleet     *quorum.Fleet
	draw      *rand.Rand // of the workload
	fate      *rand.Rand // of the faults: the workload is the same without them
	round     int
	last      protocol.Request
	requests  map[protocol.Request]*asked
	resources []resource
	result    Result
}

// asked is one request, waiting or in.
type asked struct {
	node, resource int
	since          time.Duration
	alone          bool
}

// resource is the true state of a resource.
type resource struct {
	held    []protocol.Request // more than one: the protocol has failed
	waiting []protocol.Request
}

// Timers of the world.
const (
	timerRound   uint8 = iota
	timerRequest       // somebody asks for something [seed of what it draws]
	timerRelease       // who holds a resource releases it [resource]
)

// Due implements [sim.Handler].
func (w *world) Due(node int, t sim.Timer) {
	if node != sim.World {
		w.fleet.Due(node, t)
		return
	}
	switch t.Kind {
	case timerRound:
		w.begin()
	case timerRequest:
		w.request(rand.New(rand.NewPCG(t.Arg, 0)))
	case timerRelease:
		w.release(int(t.Arg))
	}
}

// begin begins a round.
func (w *world) begin() {
	w.round++
	w.After(sim.World, w.cfg.Length, sim.Timer{Kind: timerRound})
	for x := range w.resources {
		if w.draw.IntN(2) == 0 {
			w.soon(timerRelease, uint64(x))
		}
	}
	if w.round <= w.cfg.Rounds {
		w.churn()
		w.faults()
		for range w.cfg.Requests {
			w.soon(timerRequest, w.draw.Uint64())
		}
		return
	}
	if w.round == w.cfg.Rounds+1 {
		w.result.Waited = uint64(w.waiting())
	}
	if w.waiting() == 0 {
		w.round = w.cfg.Rounds + w.cfg.Drain + 1
	}
}

// soon lets something happen at a random instant of the round.
func (w *world) soon(kind uint8, arg uint64) {
	w.After(sim.World, time.Duration(w.draw.Int64N(int64(w.cfg.Length))), sim.Timer{Kind: kind, Arg: arg})
}

func (w *world) waiting() int {
	n := 0
	for i := range w.resources {
		n += len(w.resources[i].waiting)
	}
	return n
}

// busy reports whether a node waits for or holds a resource.
func (w *world) busy(node int) bool {
	for i := range w.resources {
		for _, t := range slices.Concat(w.resources[i].held, w.resources[i].waiting) {
			if w.requests[t].node == node {
				return true
			}
		}
	}
	return false
}

// some draws nodes that are alive or not.
func (w *world) some(n int, alive, idle bool) []int {
	var found []int
	for _, i := range w.fate.Perm(w.Nodes()) {
		if len(found) == n {
			break
		}
		if w.Alive(i) == alive && (!idle || !w.busy(i)) {
			found = append(found, i)
		}
	}
	return found
}

func (w *world) churn() {
	gone, come := w.some(w.cfg.Churn/2, true, true), w.some(w.cfg.Churn/2, false, false)
	for _, i := range gone {
		w.lose(i)
	}
	for _, i := range come {
		w.join(i)
	}
}

func (w *world) faults() {
	alive := len(w.some(w.Nodes(), true, false))
	if w.fate.Float64() < w.cfg.Losses && alive > 2 {
		w.lose(w.some(1, true, false)[0])
	}
	if w.fate.Float64() < w.cfg.Joins {
		for _, i := range w.some(1, false, false) {
			w.join(i)
		}
	}
	if w.fate.Float64() < w.cfg.Resets {
		w.fleet.Reset(w.fate.IntN(len(w.resources)), w.fate.IntN(max(w.cfg.Protocol.Replicas, 1)))
	}
}

// lose takes a node out. Its requests and its critical sections are over.
func (w *world) lose(node int) {
	w.Kill(node)
	w.fleet.Lost(node)
	for i := range w.resources {
		gone := func(t protocol.Request) bool { return w.requests[t].node == node }
		r := &w.resources[i]
		r.held, r.waiting = slices.DeleteFunc(r.held, gone), slices.DeleteFunc(r.waiting, gone)
	}
}

func (w *world) join(node int) {
	w.Start(node)
	w.fleet.Joined(node)
}

// release lets who holds a resource release it.
func (w *world) release(x int) {
	r := &w.resources[x]
	if len(r.held) == 0 {
		return
	}
	t := r.held[0]
	r.held = slices.Delete(r.held, 0, 1)
	q := w.requests[t]
	delete(w.requests, t)
	w.fleet.Release(q.node, x)
}

// request lets a node ask for a resource that it does not yet wait for or hold.
func (w *world) request(draw *rand.Rand) {
	const attempts = 20
	for range attempts {
		node, x := draw.IntN(w.cfg.Nodes), draw.IntN(len(w.resources))
		for !w.Alive(node) {
			node = (node + 1) % w.Nodes()
		}
		r := &w.resources[x]
		mine := func(t protocol.Request) bool { return w.requests[t].node == node }
		if slices.ContainsFunc(r.held, mine) || slices.ContainsFunc(r.waiting, mine) {
			continue
		}
		w.last++
		w.requests[w.last] = &asked{node: node, resource: x, since: w.Now(), alone: len(r.held)+len(r.waiting) == 0}
		for _, t := range r.waiting {
			w.requests[t].alone = false
		}
		r.waiting = append(r.waiting, w.last)
		w.result.Requests++
		w.fleet.Acquire(node, x, w.last)
		return
	}
}

// Grant implements [protocol.Host].
func (w *world) Grant(node int, t protocol.Request) {
	q := w.requests[t]
	r := &w.resources[q.resource]
	i := slices.Index(r.waiting, t)
	if i < 0 || q.node != node {
		panic(fmt.Sprintf("rounds: request %d is granted at node %d, where it does not wait", t, node))
	}
	r.waiting = slices.Delete(r.waiting, i, i+1)
	if len(r.held) > 0 {
		w.result.Double++
	}
	r.held = append(r.held, t)
	w.result.Entries++
	w.result.Wait.Add(w.Now() - q.since)
	if q.alone {
		w.result.Alone.Add(w.Now() - q.since)
	}
}

// Send implements [protocol.Host].
func (w *world) Send(from, to int, kind string, m any) {
	if w.round <= w.cfg.Rounds {
		w.result.Load[to]++
		w.result.Messages.Add(kind)
	}
	w.Engine.Send(from, to, m)
}

// Deliver implements [sim.Handler].
func (w *world) Deliver(to, from int, m any) { w.fleet.Deliver(to, from, m) }

// Found implements [protocol.Host].
func (*world) Found(int) {}

func (w *world) end() {
	w.result.Stuck = w.waiting()
	for x := range w.resources {
		w.result.Responsible = append(w.result.Responsible, w.fleet.Responsible(x)...)
	}
	slices.Sort(w.result.Responsible)
	w.result.Responsible = slices.Compact(w.result.Responsible)
}

var (
	_ protocol.Host = (*world)(nil)
	_ sim.Handler   = (*world)(nil)
)
