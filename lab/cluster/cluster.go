package cluster

import (
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/hosts"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
)

// Config is a cluster.
type Config struct {
	Seed uint64
	// Hosts is how many there are; the first Members of them start together at once, and found the
	// cluster.
	Hosts, Members int
	K              int
	// Upstreams share K, each with a k of its own; 0: there is one, and the pool's tokens are alike.
	Upstreams int
	Early     bool
	Network   sim.Network
	// Ask is the ask interval.
	Ask   time.Duration
	Lease time.Duration
	// Memory: processes keep nothing. Write is how long a write takes (default 1 ms).
	Memory bool
	Write  time.Duration
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
	*hosts.World
	cfg       Config
	parcels   fairk.Parcels
	processes []*process // by host; nil: none runs
	ks        [][]int    // k of each upstream in each epoch
	epochs    uint64     // the newest of which anybody knows

	requests []*Request // by ticket, from 1
	coming   []*Request // in order of Request
	holders  []*Holder  // in order of Ticket
	unknown  bool       // nobody knew a lost gateway's tickets, at some time
	upstream upstream
}

// poolName is the pool's.
const poolName = "pool"

// Timers of the world.
const (
	timerDue  = iota // [Config.Due]
	timerDone        // the upstream has answered a request
	timerHeld        // the same of a holder's
)

// New returns a cluster whose first members start now.
func New(cfg Config) *Cluster {
	c := &Cluster{cfg: cfg, requests: make([]*Request, 1), processes: make([]*process, cfg.Hosts)}
	c.World = hosts.New(hosts.Config{Seed: cfg.Seed, Hosts: cfg.Hosts, Lease: cfg.Lease, Network: cfg.Network, Trace: cfg.Trace, App: app{c}})
	c.upstream = upstream{cluster: c}
	for i := range cfg.Hosts {
		h := c.Host(i)
		h.Memory, h.Expect = cfg.Memory, min(cfg.Members, mostFounders)
		if cfg.Write > 0 {
			h.Write = cfg.Write
		}
		if i >= h.Expect {
			h.Expect, h.Joining = 1, true
		}
	}
	for i := range cfg.Members {
		c.Host(i).Start()
	}
	return c
}

// mostFounders is how many gateways found a cluster at most; others join.
const mostFounders = 64

// At has [Config.Due] called at an instant.
func (c *Cluster) At(at time.Duration, arg uint64) {
	c.After(sim.World, at-c.Now(), sim.Timer{Kind: timerDue, Arg: arg})
}

// Pool returns the pool of the newest view.
func (c *Cluster) Pool() views.Pool {
	p, _ := c.View().Pool(poolName)
	return p
}

// Send implements [protocol.Host] for the gateways.
func (c *Cluster) Send(from, _ int, _ string, m any) {
	h := c.Host(from)
	if e, ok := fairk.Envelope(m); ok {
		h.Send(e.To, m)
	} else if to, ok := fairk.Letter(m); ok {
		h.Post(to, m)
	}
}

// Found implements [protocol.Host].
func (*Cluster) Found(int) {}

// app is what runs on the hosts.
type app struct{ *Cluster }

// Begin implements [hosts.App].
func (a app) Begin(h *hosts.Host) {
	p := a.processes[h.Index]
	if p == nil {
		p = &process{c: a.Cluster, h: h}
		a.processes[h.Index] = p
	}
	p.incarnate()
}

// End implements [hosts.App]: the kernel closes the connections.
func (a app) End(h *hosts.Host) {
	p := a.processes[h.Index]
	a.endAll(p.gateway, "lost")
	a.endHolders(h.Index)
	for _, r := range a.coming {
		if r.host == h.Index && r.state == coming {
			r.over("lost")
		}
	}
	a.processes[h.Index] = nil
}

// Follow implements [hosts.App].
func (a app) Follow(h *hosts.Host, v *views.View) {
	if spec, ok := v.Pool(poolName); ok && spec.Epoch > a.epochs {
		a.epochs = spec.Epoch
		a.ks = append(a.ks, make([][]int, int(spec.Epoch)+1-len(a.ks))...)
		a.ks[spec.Epoch] = a.upstream.kOfEach(spec)
		a.Tracef("", "epoch %d: k=%d, home %d, owed %v", spec.Epoch, spec.K, spec.Home, spec.Owed)
	}
	a.processes[h.Index].follow()
}

// Stand implements [hosts.App].
func (a app) Stand(h *hosts.Host, s core.Standing) {
	p := a.processes[h.Index]
	if s.Void {
		p.void()
		return
	}
	p.follow()
}

// Left implements [hosts.App].
func (a app) Left(h *hosts.Host) {
	p := a.processes[h.Index]
	p.tracef("has left")
	m, in := a.View().Named(h.Name)
	stays := slices.ContainsFunc(a.View().Members, func(m views.Member) bool {
		o := a.Host(hostOf(m.Name))
		return h.Passes(o) && o.Passes(h)
	})
	// Else people start it again: it may have taken along a vote that who stays needs.
	h.Left = p.gateway.Node() != 0 && (!in || m.Boot != h.Boot) && stays
	h.Kill()
}

// Receive implements [hosts.App].
func (a app) Receive(h *hosts.Host, from int, m any) {
	p := a.processes[h.Index]
	switch m := m.(type) {
	case *callMsg:
		p.onCall(from, m)
	case *replyMsg:
		p.onReply(m)
	default:
		p.gateway.Deliver(m)
	}
}

// Take implements [hosts.App].
func (a app) Take(h *hosts.Host, _ kmutex.Node, m any) bool {
	return a.processes[h.Index].gateway.TakeLetter(m)
}

// Lost implements [hosts.App].
func (a app) Lost(h *hosts.Host, m any) { a.processes[h.Index].gateway.LoseLetter(m) }

// Due implements [hosts.App].
func (a app) Due(h *hosts.Host, t sim.Timer) {
	switch {
	case h != nil:
		a.processes[h.Index].due(t)
	case t.Kind == timerDue:
		a.cfg.Due(t.Arg)
	case t.Kind == timerDone:
		a.upstream.done(protocol.Request(t.Arg))
	case t.Kind == timerHeld:
		a.holders[t.Arg].held()
	}
}

// Kind implements [hosts.App].
func (app) Kind(m any) string {
	switch m := m.(type) {
	case *callMsg:
		return "call"
	case *replyMsg:
		return "reply"
	case interface{ Kind() string }:
		return m.Kind()
	default:
		return ""
	}
}

// Long implements [hosts.App].
func (a app) Long(m any) bool {
	return slices.Contains([]string{"baton", "report", "answer", "push", "holdings"}, a.Kind(m))
}

// Kinds returns the names of the messages that a cluster sends, for [hosts.World.Watch].
// There are as many for both bindings: the seeds of package fuzz draw from them.
func Kinds(early bool) []string {
	first, second := "recall", "tokens"
	if early {
		first, second = "child", "token"
	}
	return []string{
		"request", "baton", first, second, "locate", "offer", "skip", "report", "answer", "count", "holdings", "push", "ack", "call", "reply",
		"heartbeat", "alive", "append", "appended", "commit", "ask for vote", "vote", "stand", "snapshot", "hello", "join", "renew", "grant", "ask", "knocks", "refusal",
	}
}

// hostOf returns the host of a gateway.
func hostOf(name string) int {
	n, err := strconv.Atoi(name[len("gw-"):])
	if err != nil {
		panic(err) // package hosts has made it
	}
	return n - 1
}

var (
	_ protocol.Host = (*Cluster)(nil)
	_ hosts.App     = app{}
)
