package handover

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// Config is one run.
type Config struct {
	Seed     uint64
	Protocol protocol.Spec
	// Server keeps the data and the line at a node of its own.
	Server bool
	Peers  int
	// Delay of a message, one way.
	Delay time.Duration
	// Transfer is how long the data take, beside the delays of asking and
	// answering: size over bandwidth.
	Transfer time.Duration
	// Work is what a peer does between request and acquire: T_Wblocked. Locked is
	// how long it uses the data.
	Work, Locked time.Duration
	// Workers is how many peers have other work, 0: all. If only some have, the
	// cycles of the others are measured.
	Workers int
	// Yield has a peer with other work pass a lock on that it cannot use yet, if
	// somebody else is in line, and ask again. It loses its place by that.
	Yield bool
	// Cycles that each peer carries out, one right after the other; the first
	// Skip of them are not measured.
	Cycles, Skip int
	// Leavers is how many peers leave, each right after its first request.
	Leavers int
	// Absent leaves the leavers out altogether, for comparison.
	Absent bool
}

// Result has the means over the measured cycles of the peers that stay.
type Result struct {
	Cycles int
	// Cycle is T_DHO, from request to release; Wait is T_Wait, from request to the
	// data; Blocking is T_Blocking, from acquire to the data.
	Cycle, Wait, Blocking time.Duration
	// Queue is how many others were in line, or had the lock, at a request.
	Queue float64
	// Messages per cycle, over the whole run.
	Messages float64
}

// errUnsafe means that two peers had the lock.
var errUnsafe = errors.New("handover: two peers have the lock")

// Fetch returns T_fetch: to ask for the data and to get them.
func (c *Config) Fetch() time.Duration { return 2*c.Delay + c.Transfer }

// Run carries out one run.
func Run(cfg Config) (Result, error) {
	c := &cycle{cfg: cfg, peers: make([]peer, cfg.Peers)}
	nodes := cfg.Peers
	if cfg.Server {
		c.first, nodes = 1, nodes+1
	}
	c.Engine = sim.New(cfg.Seed, nodes, network.Constant(cfg.Delay), c)
	p, err := cfg.Protocol.New(c, protocol.Setup{Nodes: nodes, Members: nodes, K: 1, Delay: cfg.Delay})
	if err != nil {
		return Result{}, err
	}
	c.protocol = p
	c.begin()
	for c.err == nil && c.Step(math.MaxInt64) {
	}
	return c.result()
}

// cycle is a run.
type cycle struct {
	*sim.Engine
	cfg      Config
	protocol protocol.Protocol
	first    int // the node of peer 0
	peers    []peer
	last     protocol.Request
	inLine   int
	locked   int
	sent     int
	err      error

	measured             int
	total, wait, blocked time.Duration
	queue                float64
	all                  int
}

type peer struct {
	done     int // cycles
	leaver   bool
	leaving  bool
	request  protocol.Request
	granted  bool
	ready    bool // it has called acquire
	began    time.Duration
	acquired time.Duration
	ahead    int
}

// Timers.
const (
	timerRequest = iota
	timerAcquire
	timerFetched
	timerRelease
	timerDestroy
	timerYield
)

// begin has all peers ask at once, in random order.
func (c *cycle) begin() {
	for at, i := range c.Rand().Perm(c.cfg.Peers) {
		leaver := at < c.cfg.Leavers
		c.peers[i].leaver = leaver
		if leaver && c.cfg.Absent {
			continue
		}
		asks := time.Duration(c.Rand().Int64N(int64(c.cfg.Delay) + 1))
		c.set(i, asks, timerRequest)
		if leaver {
			c.set(i, asks+c.cfg.Delay, timerDestroy)
		}
	}
}

func (c *cycle) set(i int, d time.Duration, kind uint8) {
	c.After(sim.World, d, sim.Timer{Kind: kind, Arg: uint64(i)})
}

// Due implements [sim.Handler].
func (c *cycle) Due(node int, t sim.Timer) {
	if node != sim.World {
		c.protocol.Due(node, t)
		return
	}
	i := int(t.Arg)
	switch t.Kind {
	case timerRequest:
		c.request(i)
	case timerAcquire:
		c.acquire(i)
	case timerFetched:
		c.fetched(i)
	case timerRelease:
		c.release(i)
	case timerDestroy:
		c.destroy(i)
	case timerYield:
		c.yield(i)
	}
}

// works reports whether a peer has other work than what it needs the data for.
func (c *cycle) works(i int) bool { return c.cfg.Workers == 0 || i < c.cfg.Workers }

// Deliver implements [sim.Handler].
func (c *cycle) Deliver(to, from int, m any) { c.protocol.Deliver(to, from, m) }

func (c *cycle) request(i int) {
	p := &c.peers[i]
	if p.leaving {
		return
	}
	c.last++
	p.request, p.began, p.ahead = c.last, c.Now(), c.inLine
	c.inLine++
	work := time.Duration(0)
	if c.works(i) {
		work = c.cfg.Work
	}
	c.set(i, work, timerAcquire)
	c.protocol.Acquire(c.first+i, p.request)
}

// acquire is when the peer has nothing else to do.
func (c *cycle) acquire(i int) {
	p := &c.peers[i]
	p.ready, p.acquired = true, c.Now()
	if p.granted {
		c.fetch(i)
	}
}

// Grant implements [protocol.Host].
func (c *cycle) Grant(node int, t protocol.Request) {
	i := node - c.first
	p := &c.peers[i]
	if p.request != t {
		panic(fmt.Sprintf("handover: request %d is granted to peer %d, which waits for %d", t, i, p.request))
	}
	if c.locked++; c.locked > 1 {
		c.err = errUnsafe
	}
	p.granted = true
	switch {
	case p.ready || p.leaving:
		c.fetch(i)
	case c.cfg.Yield:
		// Not at once: the next request in line may not have reached this peer yet, and the
		// peer would get the lock again without end.
		c.set(i, c.cfg.Delay, timerYield)
	}
}

// yield passes an unused lock on. If nobody else is in line, the peer looks again
// after a while.
func (c *cycle) yield(i int) {
	p := &c.peers[i]
	switch {
	case !p.granted || p.ready || p.leaving:
	case c.inLine == 1:
		c.set(i, c.cfg.Fetch(), timerYield)
	default:
		t := p.request
		c.last++
		p.request, p.granted = c.last, false
		c.locked--
		c.protocol.Release(c.first+i, t)
		c.protocol.Acquire(c.first+i, p.request)
	}
}

// fetch gets the data from the predecessor or the server.
func (c *cycle) fetch(i int) { c.set(i, c.cfg.Fetch(), timerFetched) }

func (c *cycle) fetched(i int) {
	p := &c.peers[i]
	switch {
	case p.leaving:
		c.release(i)
		return
	case p.done >= c.cfg.Skip && !p.leaver && (c.cfg.Workers == 0 || !c.works(i)):
		c.measured++
		c.wait += c.Now() - p.began
		c.blocked += c.Now() - p.acquired
		c.total += c.Now() - p.began + c.cfg.Locked
		c.queue += float64(p.ahead)
	}
	c.set(i, c.cfg.Locked, timerRelease)
}

func (c *cycle) release(i int) {
	p := &c.peers[i]
	if p.request == 0 {
		return // it left in the critical section
	}
	t := p.request
	*p = peer{done: p.done + 1, leaver: p.leaver, leaving: p.leaving}
	c.locked--
	c.inLine--
	c.all++
	c.protocol.Release(c.first+i, t)
	if p.done < c.cfg.Cycles && !p.leaving {
		c.set(i, 0, timerRequest)
	}
}

// destroy is dho_destroy: the peer leaves once it has no request.
func (c *cycle) destroy(i int) {
	p := &c.peers[i]
	p.leaving = true
	if m, ok := protocol.As[protocol.Moving](c.protocol); ok {
		m.Leave(c.first + i)
	}
	if p.granted && !p.ready {
		c.fetch(i)
	}
}

func (c *cycle) result() (Result, error) {
	if c.err != nil {
		return Result{}, c.err
	}
	stay := c.cfg.Peers - c.cfg.Leavers - c.cfg.Workers
	if want := stay * (c.cfg.Cycles - c.cfg.Skip); c.measured != want {
		return Result{}, fmt.Errorf("handover: %d cycles of %d came to an end", c.measured, want)
	}
	n := time.Duration(max(1, c.measured))
	return Result{
		Cycles: c.measured, Cycle: c.total / n, Wait: c.wait / n, Blocking: c.blocked / n,
		Queue: c.queue / float64(n), Messages: float64(c.sent) / float64(max(1, c.all)),
	}, nil
}

// Send implements [protocol.Host].
func (c *cycle) Send(from, to int, _ string, m any) {
	c.sent++
	c.Engine.Send(from, to, m)
}

// Found implements [protocol.Host].
func (*cycle) Found(int) {}

var (
	_ protocol.Host = (*cycle)(nil)
	_ sim.Handler   = (*cycle)(nil)
)
