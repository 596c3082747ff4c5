package cluster

import (
	"fmt"
	"io"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
)

// Config is a cluster.
type Config struct {
	Seed uint64
	// Hosts is how many there are; the first Members of them begin in the view.
	Hosts, Members int
	K              int
	Early          bool
	Network        sim.Network
	// Ask is the ask interval.
	Ask   time.Duration
	Terms lease.Terms
	// Tickets lets the pool give out tickets.
	Tickets bool
	// Slack is added to what the upstream may see, to try the judge.
	Slack int
	// Trace gets a line for all that happens; nil: none.
	Trace io.Writer
	// Due is told of timers that were set with [Cluster.At].
	Due func(arg uint64)
}

// Cluster is a cluster that runs. It is driven by one goroutine.
type Cluster struct {
	*sim.Engine
	cfg     Config
	parcels fairk.Parcels
	hosts   []host
	log     agreed
	newest  *fairk.View
	ks      []int // k of each epoch
	raft    raft
	// links by their two ends: those that are in doubt. calls are the pairs of which
	// the first has a connection to the second for what is no link's business.
	links []map[int]*link
	calls map[[2]int]bool
	// bars are the pairs of which the first can open no new connection to the second,
	// narrows those of which its long messages do not get there, and losses those of which half
	// of its letters are lost.
	bars, narrows, losses map[[2]int]bool

	requests []*Request // by ticket, from 1
	coming   []*Request // in order of Request
	holders  []*Holder  // in order of Ticket
	unknown  bool       // nobody knew a lost gateway's tickets, at some time
	upstream upstream
	errs     []error
	// before and after are told of each message, next to its delivery.
	before, after func(to int, kind string)
}

// host is a machine, with or without a process on it.
type host struct {
	boots uint64
	// term is the newest that its raft server knows; it is on disk.
	term uint64
	// index of the newest entry of its log; it is on disk, too.
	index   uint64
	process *process // nil: none runs
	leaving bool     // it has been told to
	left    bool     // for good
}

// Timers of the world.
const (
	timerDue      = iota // [Config.Due]
	timerElection        // the state of the leader is looked at
	timerDone            // the upstream has answered a request
	timerHeld            // the same of a holder's
)

// New returns a cluster whose first members are in the view.
func New(cfg Config) *Cluster {
	c := &Cluster{
		cfg: cfg, hosts: make([]host, cfg.Hosts), requests: make([]*Request, 1),
		links: make([]map[int]*link, cfg.Hosts), calls: make(map[[2]int]bool),
		bars: make(map[[2]int]bool), narrows: make(map[[2]int]bool), losses: make(map[[2]int]bool),
	}
	c.Engine = sim.New(cfg.Seed, cfg.Hosts, cfg.Network, c)
	c.upstream = upstream{cluster: c}
	c.log.K, c.log.Tickets, c.log.Replicas = cfg.K, cfg.Tickets, replicas
	for i := range cfg.Hosts {
		if i < cfg.Members {
			c.boot(i)
			c.raft.voters = append(c.raft.voters, i)
		} else {
			c.Engine.Kill(i) // not started yet
		}
	}
	c.raft.voters = c.raft.voters[:leader.VoterTarget(cfg.Members)]
	for i := range cfg.Members {
		c.hosts[i].index = c.log.Index + 1
		c.commit(func(a *agreed) bool {
			a.Members = append(a.Members, fairk.Member{Node: kmutex.Node(a.Index), Host: i, Boot: c.hosts[i].boots})
			return true
		})
	}
	c.commit(func(a *agreed) bool { a.beginEpoch(); return true })
	c.elect(0)
	for i := range cfg.Members {
		c.hosts[i].process.follow(c.newest)
	}
	c.After(sim.World, 0, sim.Timer{Kind: timerElection})
	return c
}

// At has [Config.Due] called at an instant.
func (c *Cluster) At(at time.Duration, arg uint64) {
	c.After(sim.World, at-c.Now(), sim.Timer{Kind: timerDue, Arg: arg})
}

// Err returns what has gone wrong first; nil: nothing.
func (c *Cluster) Err() error {
	if len(c.errs) == 0 {
		return nil
	}
	return c.errs[0]
}

func (c *Cluster) fail(err error) {
	c.tracef("", "FAILED: %v", err)
	c.errs = append(c.errs, err)
}

// Watch has functions called next to each delivery of a message, just before and
// just after it; they may be nil.
func (c *Cluster) Watch(before, after func(to int, kind string)) { c.before, c.after = before, after }

// Deliver implements [sim.Handler].
func (c *Cluster) Deliver(to, from int, m any) {
	kind := kindOf(m)
	if c.before != nil {
		c.before(to, kind)
	}
	if p := c.hosts[to].process; p != nil {
		if beat, ok := m.(*beatMsg); !ok || beat.term != p.heard || beat.view.Index > p.gateway.View().Index {
			p.tracef("gets from %d: %v", from, m)
		}
		p.deliver(from, m)
	}
	if c.after != nil {
		c.after(to, kind)
	}
}

// Due implements [sim.Handler].
func (c *Cluster) Due(node int, t sim.Timer) {
	if node != sim.World {
		if p := c.hosts[node].process; p != nil {
			p.due(t)
		}
		return
	}
	switch t.Kind {
	case timerDue:
		c.cfg.Due(t.Arg)
	case timerElection:
		c.checkAllLinks()
		c.watchLeader()
	case timerDone:
		c.upstream.done(protocol.Request(t.Arg))
	case timerHeld:
		c.holders[t.Arg].held()
	}
}

// Send implements [protocol.Host]. Nothing is sent to the same host here either,
// but what raft does there goes without links.
func (c *Cluster) Send(from, to int, kind string, m any) {
	if from == to {
		if p := c.hosts[to].process; p != nil {
			p.deliver(from, m)
		}
		return
	}
	way := [2]int{from, to}
	if called(m) {
		// A paused process has its connections opened by the kernel.
		if opens := !c.bars[way] && c.hosts[to].process != nil && !c.IsCut(from, to) && !c.IsCut(to, from); !opens && !c.calls[way] {
			return
		}
		c.calls[way] = true
	}
	if c.losses[way] && c.loses(from, to, m) {
		return
	}
	c.sticks(from, to, kind)
	c.owe(from, to, m)
	c.Engine.Send(from, to, m)
}

// loses lets a letter get lost, or the word that it was taken: in both cases its sender
// only knows that the connection broke.
func (c *Cluster) loses(from, to int, m any) bool {
	told, is := fairk.Undelivered(m)
	if !is || c.Rand().IntN(2) == 0 {
		return false
	}
	c.Engine.Send(to, from, told)
	return c.Rand().IntN(4) > 0
}

// Found implements [protocol.Host].
func (*Cluster) Found(int) {}

func (c *Cluster) tracef(who, format string, args ...any) {
	if c.cfg.Trace == nil {
		return
	}
	fmt.Fprintf(c.cfg.Trace, "%12.6f %-8s "+format+"\n", append([]any{c.Now().Seconds(), who}, args...)...)
}

var (
	_ protocol.Host = (*Cluster)(nil)
	_ sim.Handler   = (*Cluster)(nil)
)
