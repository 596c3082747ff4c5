package cluster

import (
	"maps"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/hosts"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
)

// process is what a run of kgate on a host has beside its core: one incarnation of a gateway after the
// other.
type process struct {
	c       *Cluster
	h       *hosts.Host
	gateway *fairk.Gateway
	memory  pool.Memory
	calls   []waitingCall // about tickets that are here
	asked   views.Pool    // what this incarnation has asked to be agreed on
	leaving bool
	boots   uint64        // counts incarnations
	woke    time.Duration // true time
	ticking bool
	missing map[kmutex.Node]time.Duration // as the core was told last
	barred  map[int]bool                  // upstreams that cannot be reached from here
}

// Timers of a process, beside its gateway's.
const (
	timerTick    = fairk.TimerOther + iota // reports, leaves
	timerRequest                           // a request has come
	timerAnswer                            // the upstream has answered a request
	timerGone                              // a client has left
	timerLeave                             // SIGTERM
	timerHolder                            // of a ticket's holder
)

// tickEvery is the interval of tick.
const tickEvery = 100 * time.Millisecond

// incarnate begins a new incarnation.
func (p *process) incarnate() {
	p.asked, p.missing = views.Pool{}, nil
	p.boots++
	cfg := fairk.Config{
		Host: p.c, Parcels: &p.c.parcels, Index: p.h.Index, Boot: p.h.Boot, Timer: p.boots << 32, Early: p.c.cfg.Early, Ask: p.c.cfg.Ask,
		Clock: p.h.Clock, Since: p.c.since, Memory: &p.memory,
		Wall:  func() int64 { return int64(p.c.Wall(p.h.Index)) },
		Moved: p.answerCalls, Unknown: func() { p.c.unknown = true },
		Recover: func(epoch uint64, spread, whole bool) {
			p.h.Propose(views.Command{Recover: &views.Recover{Pool: poolName, Epoch: epoch, Spread: spread, Whole: whole}})
		},
		Failed: func(_ *fairk.Gateway, err error) { p.c.Fail(err) },
	}
	if p.c.cfg.Trace != nil {
		cfg.Watch = func(_ *fairk.Gateway, t kmutex.Trace) { p.tracef("%v", t) }
	}
	p.gateway = fairk.NewGateway(cfg)
}

func (p *process) tracef(format string, args ...any) { p.h.Tracef(format, args...) }

// entitled reports whether this incarnation may have requests in flight now.
func (p *process) entitled() bool {
	return p.h.Stands() && p.h.Standing.Node == p.gateway.Node()
}

// follow takes over the newest view, as package gateway does: once this gateway has a lease in it.
func (p *process) follow() {
	v := p.h.Core.View()
	self, in := v.Member(p.h.Standing.Node)
	if !p.h.Stands() || !in {
		return
	}
	p.define(v)
	fv := &fairk.View{Index: v.Number}
	var peers []hosts.Peer
	for _, m := range v.Members {
		host := hostOf(m.Name)
		fv.Members = append(fv.Members, fairk.Member{Node: m.Node, Host: host, Boot: m.Boot})
		if m.Node != self.Node {
			peers = append(peers, hosts.Peer{Node: m.Node, Host: host})
		}
	}
	for _, m := range p.h.SetPeers(self.Node, peers) {
		p.tracef("takes back: %v", m)
		p.gateway.Unsent(m)
	}
	spec, ok := v.Pool(poolName)
	if !ok {
		return
	}
	fv.Pool = func(n kmutex.Node) pool.View { return v.ForPool(spec, n, replicas) }
	p.gateway.Follow(fv)
	p.bar()
	p.tick()
}

// define has the pool agreed on, and that it has tickets.
func (p *process) define(v *views.View) {
	spec, ok := v.Pool(poolName)
	switch {
	case !ok && p.asked.Name == "":
		p.asked.Name = poolName
		binding := admission.BindingLate
		if p.c.cfg.Early {
			binding = admission.BindingEarly
		}
		p.h.Propose(views.Command{Define: &views.Define{Name: poolName, K: p.c.cfg.K, Binding: binding, Reclaim: admission.ReclaimLease, Classes: p.c.classes()}})
	case ok && p.c.cfg.Tickets && spec.Tickets == 0 && p.asked.Tickets == 0:
		p.asked.Tickets = 1
		p.h.Propose(views.Command{UseTickets: &views.UseTickets{Pool: poolName, TTL: maxTTL}})
	}
}

// void ends everything of the present incarnation; another one begins.
func (p *process) void() {
	p.tracef("its lease is over")
	p.c.endAll(p.gateway, "isolated")
	if p.gateway.Pool() != nil {
		if err := p.gateway.Pool().End(); err != nil {
			p.c.Fail(err)
		}
	}
	p.h.SetPeers(0, nil)
	p.h.Step(core.Rejoin{})
}

// tick does the periodic work: it tells the core which gateways' reports are missing, and when nothing is
// in flight any more.
func (p *process) tick() {
	if p.ticking {
		return
	}
	missing := make(map[kmutex.Node]time.Duration)
	busy := p.leaving
	if pl := p.gateway.Pool(); pl != nil && pl.State() != pool.Void {
		nodes, since := pl.Missing()
		for _, n := range nodes {
			missing[n] = since
		}
		busy = busy || pl.State() != pool.Installed || len(missing) > 0
	}
	if !maps.Equal(missing, p.missing) {
		p.missing = missing
		p.h.Step(core.Missing{Since: missing})
	}
	if p.leaving && !p.c.busy(p.gateway) {
		p.h.Step(core.Leave{})
	}
	if busy && p.h.Core != nil {
		p.ticking = true
		p.h.After(tickEvery, sim.Timer{Kind: timerTick})
	}
}

func (p *process) due(t sim.Timer) {
	switch ticket := protocol.Request(t.Arg); t.Kind {
	case timerTick:
		p.ticking = false
		p.tick()
	case timerRequest:
		p.enter(p.c.coming[t.Arg])
	case timerAnswer:
		p.c.answered(p, ticket)
	case timerGone:
		p.c.gone(p, ticket)
	case timerLeave:
		p.drain()
	case timerHolder:
		p.c.holders[t.Arg].tick()
	default:
		p.gateway.Due(t)
	}
}

func (p *process) after(d time.Duration, kind uint8, arg uint64) {
	p.h.After(d, sim.Timer{Kind: kind, Arg: arg})
}

// drain begins to leave.
func (p *process) drain() {
	p.tracef("leaves")
	p.leaving = true
	for i, r := range p.c.requests[1:] {
		if r.gateway == p.gateway && r.state == waiting {
			r.over("refused")
			p.gateway.Cancel(protocol.Request(i + 1))
		}
	}
	p.tick()
}
