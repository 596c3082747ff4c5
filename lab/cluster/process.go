package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
)

// process is one run of kgate on a host: one incarnation after the other.
type process struct {
	c       *Cluster
	host    int
	boot    uint64
	gateway *fairk.Gateway
	memory  pool.Memory
	calls   []waitingCall // about tickets that are here
	holder  *lease.Holder // nil: in no view yet
	voided  kmutex.Node   // the incarnation before this one, which has nothing in flight
	leader  int           // who leads, as far as is known here; -1: nobody
	heard   uint64        // the term of that leader
	leads   *leadership   // nil: this process does not
	rules   *leader.Rules // of the term that it has led last
	// name of the host and of boot, as gossip and the leader's rules have them.
	name, bootName string
	joined         time.Duration // when it last asked to be let in, by its own clock
	// renewal is under way to the leader since asked, by its own clock. Here it is the
	// only one; package membership has up to lease.Outstanding, which lives longer.
	renewal lease.Renewal
	asked   time.Duration
	leaving bool
	woke    time.Duration // true time
	watched bool          // there is a timer for the end of the lease
}

// Timers of a process, beside those of its gateway.
const (
	timerTick    = fairk.TimerOther + iota // renewals, joins, leaves
	timerLapse                             // the lease may be over
	timerLead                              // what a leader does now and then
	timerRequest                           // a request has come
	timerAnswer                            // the upstream has answered a request
	timerGone                              // a client has left
	timerLeave                             // SIGTERM
	timerHolder                            // of a ticket's holder
)

// boot starts a process on a host.
func (c *Cluster) boot(i int) {
	h := &c.hosts[i]
	h.process = &process{c: c, host: i, leader: -1}
	h.process.incarnate()
	c.doubtAll(i, true)
	h.process.tick()
}

// incarnate begins a new incarnation.
func (p *process) incarnate() {
	h := &p.c.hosts[p.host]
	h.boots++
	p.boot, p.holder, p.joined, p.watched, p.renewal = h.boots, nil, -time.Hour, false, lease.Renewal{}
	p.name, p.bootName = strconv.Itoa(p.host), strconv.FormatUint(p.boot, 10)
	cfg := fairk.Config{
		Host: p.c, Parcels: &p.c.parcels, Index: p.host, Boot: p.boot, Early: p.c.cfg.Early, Ask: p.c.cfg.Ask,
		Clock: p.clock, Since: p.c.since, Memory: &p.memory,
		Wait: p.c.cfg.Terms.Wait(), Wall: func() int64 { return int64(p.c.Wall(p.host)) },
		Moved: p.answerCalls, Unknown: func() { p.c.unknown = true },
		Recover: func(epoch uint64) { p.tell(&recoverMsg{epoch}) },
		Failed:  func(g *fairk.Gateway, err error) { p.c.fail(err) },
	}
	if p.c.cfg.Trace != nil {
		cfg.Watch = func(_ *fairk.Gateway, t kmutex.Trace) { p.tracef("%v", t) }
	}
	p.gateway = fairk.NewGateway(cfg)
}

func (p *process) tracef(format string, args ...any) {
	if p.c.cfg.Trace != nil {
		p.c.tracef(fmt.Sprintf("%d/n%d", p.host, p.gateway.Node()), format, args...)
	}
}

func (p *process) clock() time.Duration { return p.c.Clock(p.host) }

func (p *process) after(d time.Duration, kind uint8, arg uint64) {
	p.c.After(p.host, d, sim.Timer{Kind: kind, Arg: arg})
}

// follow takes over a view.
func (p *process) follow(v *fairk.View) {
	p.withdraw(v)
	in := p.gateway.Follow(v)
	switch {
	case in && p.holder == nil:
		p.holder = lease.NewHolder(p.c.cfg.Terms, p.gateway.Node(), p.clock())
		p.c.checkLinks(p.host)
		p.renew()
	case !in && p.holder != nil && p.leaving:
		p.tracef("has left")
		n := p.gateway.Node()
		p.c.hosts[p.host].left = slices.ContainsFunc(p.c.log.lost, func(l lost) bool { return l.node == n && l.left })
		p.c.Kill(p.host)
	case !in && p.holder != nil:
		p.void("is lost in view", v.Index)
	}
}

// withdraw takes back what has not left for members that v has no more, as the
// links do.
func (p *process) withdraw(v *fairk.View) {
	for _, m := range p.gateway.View().Members {
		if _, in := v.Member(m.Node); in || m.Node == p.gateway.Node() {
			continue
		}
		p.c.Withdraw(p.host, m.Host, func(held any) bool {
			e, ok := fairk.Envelope(held)
			if ok = ok && e.To == m.Node && e.From == p.gateway.Node(); ok {
				p.tracef("takes back: %v", held)
				p.gateway.Unsent(held)
			}
			return ok
		})
	}
}

// entitled reports whether this incarnation may have requests in flight now.
func (p *process) entitled() bool {
	return p.holder != nil && p.holder.Valid(p.clock())
}

// void ends everything of the present incarnation and begins another one.
func (p *process) void(why string, what any) {
	p.tracef("comes back as a new incarnation: %s %v", why, what)
	p.c.endAll(p.gateway, "isolated")
	p.voided = p.gateway.Node()
	if err := p.gateway.Pool().End(); err != nil {
		p.c.fail(err)
	}
	p.incarnate()
	p.c.doubtAll(p.host, true)
}

// tick does what is to be done now and then.
func (p *process) tick() {
	terms := p.c.cfg.Terms
	defer p.after(terms.Retry()/2, timerTick, 0)
	now := p.clock()
	switch {
	case p.holder == nil && p.leaving:
		p.c.Kill(p.host) // nobody could agree on it: the host may come back
	case p.holder == nil && now-p.joined > 2*terms.Retry():
		p.joined = now
		p.tell(&joinMsg{host: p.host, boot: p.boot, voided: p.voided})
	case p.holder != nil && p.holder.Over(now):
		p.void("its lease is over since", p.c.Now())
	case p.holder != nil && now >= p.holder.Due() && !p.awaits(now):
		p.renew()
	case p.leaving && !p.c.busy(p.gateway) && p.leads != nil:
		p.leads.handOver()
	case p.leaving && !p.c.busy(p.gateway):
		p.tell(&leaveMsg{node: p.gateway.Node()})
	}
}

func (p *process) renew() {
	p.asked = p.clock()
	r := p.holder.Send(p.asked)
	if p.leader >= 0 {
		p.renewal = r
	}
	p.tell(&renewMsg{r, leader.Report{View: p.gateway.View().Index, Down: p.down(), Missing: p.missing()}})
}

// awaits reports that a renewal is under way. One that gets no answer in time breaks
// its connection.
func (p *process) awaits(now time.Duration) bool {
	if p.renewal.Tag != 0 && now-p.asked >= p.c.cfg.Terms.Lease/3 {
		p.renewal = lease.Renewal{}
		p.c.hangUp(p.host, p.leader)
	}
	return p.renewal.Tag != 0
}

// tell sends something to the leader.
func (p *process) tell(m any) {
	if p.leader >= 0 {
		p.c.Send(p.host, p.leader, "", m)
	}
}

func (p *process) granted(r lease.Renewal) {
	if p.holder == nil || r != p.renewal {
		return
	}
	p.renewal = lease.Renewal{}
	if p.holder.Granted(r, p.clock()) && !p.watched {
		p.watch()
	}
}

// watch sets the timer for the end of the lease.
func (p *process) watch() {
	until, _ := p.holder.Until()
	p.watched = true
	p.after(until-p.clock()+time.Microsecond, timerLapse, p.boot)
}

// lapse looks whether the lease is over.
func (p *process) lapse() {
	if p.holder.Over(p.clock()) {
		p.void("its lease is over since", p.c.Now())
		return
	}
	p.watch()
}

func (p *process) due(t sim.Timer) {
	switch ticket := protocol.Request(t.Arg); t.Kind {
	case timerTick:
		p.tick()
	case timerLapse:
		if t.Arg == p.boot {
			p.lapse()
		}
	case timerLead:
		if l := p.leads; l != nil && l.term == t.Arg {
			l.work()
		}
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

func (p *process) deliver(from int, m any) {
	switch m := m.(type) {
	case *beatMsg:
		p.onBeat(from, m)
	case *askMsg:
		p.onAsk(from, m)
	case *grantMsg:
		p.granted(m.renewal)
	case *refuseMsg:
		if p.holder != nil {
			p.holder.Refused(m.renewal)
		}
	case *refuseJoinMsg:
		if p.holder == nil && p.boot == m.boot {
			p.incarnate()
			p.c.doubtAll(p.host, true)
		}
	case *joinMsg, *leaveMsg, *renewMsg, *tellMsg, *recoverMsg:
		if p.leads != nil {
			p.leads.take(from, m)
		}
	case *callMsg:
		p.onCall(from, m)
	case *replyMsg:
		p.onReply(m)
	default:
		p.gateway.Deliver(from, m)
	}
}
