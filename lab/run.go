package lab

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
	"github.com/kgate/kgate/lab/workload"
)

// errUnsafe means that more than k requests were in the critical section.
var errUnsafe = errors.New("lab: more than k in the critical section")

// Config is one run. The same configuration gives the same result.
type Config struct {
	Seed     uint64
	Nodes, K int
	Protocol protocol.Spec
	Network  network.Model
	Workload workload.Config
	// Warmup is the time at the beginning that is not measured.
	Warmup time.Duration
	// Duration of the measured time, and Entries after which it ends at the
	// latest; 0: not bounded by this one.
	Duration time.Duration
	Entries  uint64
	// Stalls are pauses of nodes. They cannot be combined with patience.
	Stalls []Stall
	// Members is how many nodes, the first ones, are in the system from the
	// beginning; 0: all. The others may join.
	Members int
	// Changes are crashes, restarts, departures and arrivals of nodes. They
	// cannot be combined with stalls or patience.
	Changes []Change
	// Detect is how long it takes at most until every living node has been told
	// of a crash, if the protocol has a failure detector.
	Detect time.Duration
}

// Stall stops a node for a while: it takes in neither requests nor messages, and
// what ends there ends when it goes on.
type Stall struct {
	Node    int
	At, For time.Duration
}

// Validate tells everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	bad := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, errors.New("lab: "+text))
		}
	}
	bad(c.Nodes < 1 || c.K < 1, "nodes and k start at 1")
	bad(c.Protocol.New == nil, "no protocol")
	bad(c.Network == nil, "no network")
	bad(c.Warmup < 0 || c.Duration < 0, "negative time")
	bad(c.Duration == 0 && c.Entries == 0, "no end: neither duration nor entries")
	bad(len(c.Stalls) > 0 && c.Workload.Patience > 0, "stalls with patience")
	for _, s := range c.Stalls {
		bad(s.Node < 0 || s.Node >= c.Nodes || s.At < 0 || s.For <= 0, "a stall of no node or no time")
	}
	bad(c.Members < 0 || c.Members > c.Nodes, "members are some of the nodes")
	bad(len(c.Changes) > 0 && (len(c.Stalls) > 0 || c.Workload.Patience > 0), "changes with stalls or patience")
	for _, x := range c.Changes {
		bad(x.Node < 0 || x.Node >= c.Nodes || x.At < 0, "a change of no node, or before the beginning")
	}
	if m, ok := c.Network.(*network.Matrix); ok {
		bad(m.Nodes() < c.Nodes, "the network has fewer nodes")
	}
	return errors.Join(append(errs, c.Workload.Validate(c.Nodes))...)
}

// WorkloadStream is the second half of the seed of the source that a run's workload
// draws from: a [workload.Source] with rand.NewPCG(Seed, WorkloadStream) has the same
// arrivals and holds. Protocols draw from another, so they can be compared under
// the same ones.
const WorkloadStream = 1

// Run carries out one run.
func Run(cfg Config) (*meter.Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Members == 0 {
		cfg.Members = cfg.Nodes
	}
	r := &run{
		cfg:      cfg,
		meter:    meter.New(cfg.Nodes, cfg.K, cfg.Warmup),
		requests: make(map[protocol.Request]request),
		nodes:    make([]member, cfg.Nodes),
	}
	r.Engine = sim.New(cfg.Seed, cfg.Nodes, cfg.Network, r)
	r.source = workload.NewSource(cfg.Workload, cfg.Nodes, rand.New(rand.NewPCG(cfg.Seed, WorkloadStream)))
	p, err := cfg.Protocol.New(r, protocol.Setup{Nodes: cfg.Nodes, Members: cfg.Members, K: cfg.K, Delay: cfg.Network.Mean()})
	if err != nil {
		return nil, err
	}
	r.protocol = p
	if err := r.scheduleChanges(); err != nil {
		return nil, err
	}
	r.begin()
	end := time.Duration(math.MaxInt64)
	if cfg.Duration > 0 {
		end = cfg.Warmup + cfg.Duration
	}
	for !r.full && r.Step(end) {
	}
	result := r.meter.Result(r.Now())
	result.Events = r.Events()
	result.Oldest = r.oldest()
	if result.MaxRunning > cfg.K {
		return result, fmt.Errorf("%w: %d, k=%d, %s, seed %d", errUnsafe, result.MaxRunning, cfg.K, cfg.Protocol.Name, cfg.Seed)
	}
	return result, nil
}

// run is a run that goes on: the world around a protocol.
type run struct {
	*sim.Engine
	cfg      Config
	protocol protocol.Protocol
	source   *workload.Source
	meter    *meter.Meter
	requests map[protocol.Request]request
	stalled  []protocol.Request // came or ended at a node that is paused
	nodes    []member
	full     bool // all entries that were wanted
}

// request is a request that waits or is in the critical section.
type request struct {
	node    int
	since   time.Duration
	hold    time.Duration
	granted bool
}

// Timers of the world.
const (
	timerArrival = iota // open: the next requests come [node and count drawn before]
	timerThought        // closed: a client has thought [node, and its life]
	timerEnd            // a critical section ends [request]
	timerLeave          // a client's patience ends [request]
	timerStall          // a node stops [stall]
	timerResume         // it goes on [stall]
	timerChange         // something happens to a node [change]
	timerDown           // a node is told of a crash [node and the crashed one]
)

func (r *run) begin() {
	for i, s := range r.cfg.Stalls {
		r.After(sim.World, s.At, sim.Timer{Kind: timerStall, Arg: uint64(i)})
		r.After(sim.World, s.At+s.For, sim.Timer{Kind: timerResume, Arg: uint64(i)})
	}
	for node := range r.cfg.Members {
		r.populate(node)
	}
	if r.source.Clients() == 0 {
		r.next()
	}
}

// populate lets the clients of a node begin.
func (r *run) populate(node int) {
	for range r.source.Clients() {
		r.think(node)
	}
}

func (r *run) think(node int) {
	r.After(sim.World, r.source.Think(), sim.Timer{Kind: timerThought, Arg: uint64(r.nodes[node].life)<<32 | uint64(node)})
}

// next schedules what an open stream brings next.
func (r *run) next() {
	after, node, count := r.source.Next()
	r.After(sim.World, after, sim.Timer{Kind: timerArrival, Arg: uint64(count)<<32 | uint64(node)})
}

// Deliver implements [sim.Handler].
func (r *run) Deliver(to, from int, m any) {
	r.protocol.Deliver(to, from, m)
	r.moved(to)
}

// Due implements [sim.Handler].
func (r *run) Due(node int, t sim.Timer) {
	if node != sim.World {
		r.protocol.Due(node, t)
		r.moved(node)
		return
	}
	switch t.Kind {
	case timerArrival:
		for range t.Arg >> 32 {
			r.arrive(int(t.Arg & math.MaxUint32))
		}
		r.next()
	case timerThought:
		if node := int(t.Arg & math.MaxUint32); uint64(r.nodes[node].life) == t.Arg>>32 {
			r.arrive(node)
		}
	case timerEnd:
		r.end(protocol.Request(t.Arg))
	case timerLeave:
		r.leave(protocol.Request(t.Arg))
	case timerStall:
		r.Pause(r.cfg.Stalls[t.Arg].Node)
	case timerResume:
		r.resume(r.cfg.Stalls[t.Arg].Node)
	case timerChange:
		r.change(r.cfg.Changes[t.Arg])
	case timerDown:
		r.tell(int(t.Arg>>32), int(t.Arg&math.MaxUint32))
	}
}

// resume lets a node go on: first with what came from its own clients.
func (r *run) resume(node int) {
	r.Resume(node)
	waited := r.stalled
	r.stalled = nil
	for _, t := range waited {
		switch q := r.requests[t]; {
		case q.node != node:
			r.stalled = append(r.stalled, t)
		case q.granted:
			r.end(t)
		default:
			r.protocol.Acquire(node, t)
		}
	}
}

func (r *run) arrive(node int) {
	if r.nodes[node].phase != inside {
		return // nobody is there to take it
	}
	t := protocol.Request(r.meter.Arrived(r.Now()) + 1)
	r.requests[t] = request{node: node, since: r.Now(), hold: r.source.Hold()}
	if patience, leaves := r.source.Patience(); leaves {
		r.After(sim.World, patience, sim.Timer{Kind: timerLeave, Arg: uint64(t)})
	}
	if r.Paused(node) {
		r.stalled = append(r.stalled, t)
		return
	}
	r.protocol.Acquire(node, t)
}

// Grant implements [protocol.Host].
func (r *run) Grant(node int, t protocol.Request) {
	q, ok := r.requests[t]
	if !ok || q.granted || q.node != node {
		panic(fmt.Sprintf("lab: %s grants request %d of node %d, which does not wait there", r.cfg.Protocol.Name, t, node))
	}
	q.granted = true
	r.requests[t] = q
	r.meter.Entered(r.Now(), uint64(t)-1, node, q.since)
	r.After(sim.World, q.hold, sim.Timer{Kind: timerEnd, Arg: uint64(t)})
	r.full = r.cfg.Entries > 0 && r.meter.Entries() >= r.cfg.Entries
}

func (r *run) end(t protocol.Request) {
	q, ok := r.requests[t]
	if !ok {
		return // its node has crashed
	}
	if r.Paused(q.node) {
		r.stalled = append(r.stalled, t)
		return
	}
	delete(r.requests, t)
	r.meter.Ended(r.Now())
	r.protocol.Release(q.node, t)
	r.again(q.node)
	r.moved(q.node)
}

func (r *run) leave(t protocol.Request) {
	q, ok := r.requests[t]
	if !ok || q.granted {
		return
	}
	delete(r.requests, t)
	r.meter.GaveUp(r.Now(), uint64(t)-1)
	r.protocol.Cancel(q.node, t)
	r.again(q.node)
}

// again lets a client of a closed system begin anew.
func (r *run) again(node int) {
	if r.cfg.Workload.Closed != nil && r.nodes[node].phase == inside {
		r.think(node)
	}
}

// Send implements [protocol.Host].
func (r *run) Send(from, to int, kind string, m any) {
	r.meter.Sent(r.Now(), kind)
	r.Engine.Send(from, to, m)
}

// Found implements [protocol.Host].
func (r *run) Found(hops int) { r.meter.Found(r.Now(), hops) }

var (
	_ protocol.Host = (*run)(nil)
	_ sim.Handler   = (*run)(nil)
)
