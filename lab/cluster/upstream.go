package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
)

// ErrTooMany means that more requests than allowed were at the upstream.
var ErrTooMany = errors.New("more than k at the upstream")

// Request is one client's.
type Request struct {
	host     int
	arrived  time.Duration // true time; when it got into line
	stamp    int64         // the same by the gateway's wall clock
	Hold     time.Duration // how long it is at the upstream
	patience time.Duration // 0: for ever
	gateway  *fairk.Gateway
	holder   *Holder // whose it is; nil: an ordinary one
	began    time.Duration
	state    state
	outcome  string
	at       int // which upstream it is at
}

type state uint8

const (
	coming   state = iota // on its way to the gateway
	waiting               // in line
	inFlight              // at the upstream
	answered              // the upstream is done, the gateway does not know yet
	over
)

// Request lets a client of a gateway ask: its critical section takes hold, and it
// leaves after patience, unless that is 0.
func (c *Cluster) Request(host int, hold, patience time.Duration) *Request {
	r := &Request{host: host, Hold: hold, patience: patience}
	if p := c.processes[host]; p == nil {
		r.over("nobody there")
	} else {
		c.coming = append(c.coming, r)
		p.after(0, timerRequest, uint64(len(c.coming)-1))
	}
	return r
}

// Outcome tells how a request ended: "served", "left", why it was refused or
// lost; "" while it goes on.
func (r *Request) Outcome() string { return r.outcome }

func (r *Request) over(outcome string) { r.state, r.outcome = over, outcome }

// enter lets a request into line. Its ticket is larger than all before it.
func (p *process) enter(r *Request) {
	if p.leaving || !p.entitled() {
		r.over("refused")
		return
	}
	t := protocol.Request(len(p.c.requests))
	p.c.requests = append(p.c.requests, r)
	r.state, r.gateway = waiting, p.gateway
	r.arrived, r.stamp = p.c.Now(), int64(p.c.Wall(p.h.Index))
	if r.patience > 0 {
		p.after(r.patience, timerGone, uint64(t))
	}
	p.tracef("request %d", t)
	p.gateway.Acquire(t)
}

// since tells gateways when a waiting ticket arrived.
func (c *Cluster) since(t protocol.Request) (int64, bool) {
	r := c.requests[t]
	return r.stamp, r.state == waiting
}

// Grant implements [protocol.Host].
func (c *Cluster) Grant(host int, t protocol.Request) {
	r := c.requests[t]
	p := c.processes[host]
	if r.state != waiting || r.gateway != p.gateway {
		c.Fail(fmt.Errorf("ticket %d is granted, which does not wait", t))
		return
	}
	if !p.entitled() {
		return // void comes
	}
	r.state = inFlight
	r.at = p.upstreamOf(p.tokenOf(t))
	c.upstream.start(p, t, p.gateway.Pool().Epoch())
	c.After(sim.World, r.Hold, sim.Timer{Kind: timerDone, Arg: uint64(t)})
}

// answered lets a gateway know that the upstream is done with a request.
func (c *Cluster) answered(p *process, t protocol.Request) {
	r := c.requests[t]
	if r.state == answered && r.gateway == p.gateway {
		r.over("served")
		p.gateway.Release(t)
	}
}

// gone lets a waiting client leave.
func (c *Cluster) gone(p *process, t protocol.Request) {
	r := c.requests[t]
	if r.state == waiting && r.gateway == p.gateway {
		r.over("left")
		p.gateway.Cancel(t)
	}
}

// busy reports whether a gateway has requests in flight.
func (c *Cluster) busy(g *fairk.Gateway) bool {
	for _, r := range c.requests[1:] {
		if r.gateway == g && (r.state == inFlight || r.state == answered) {
			return true
		}
	}
	return false
}

// endAll ends all requests of a gateway: its connections are closed.
func (c *Cluster) endAll(g *fairk.Gateway, outcome string) {
	for i, r := range c.requests[1:] {
		if r.gateway != g || r.state == over {
			continue
		}
		if r.state == inFlight {
			c.upstream.end(protocol.Request(i + 1))
		}
		r.over(outcome)
	}
}

func upstreamName(i int) string { return "http://upstream-" + strconv.Itoa(i) }

// classes shares K out to the upstreams.
func (c *Cluster) classes() []views.Class {
	var all []views.Class
	for i := range c.cfg.Upstreams {
		all = append(all, views.Class{Upstream: upstreamName(i), K: (c.cfg.K + i) / c.cfg.Upstreams})
	}
	return all
}

// tokenOf returns the token of a request that has just been granted.
func (p *process) tokenOf(t protocol.Request) kmutex.Token {
	running, _ := p.gateway.Pool().Machine().Holdings()
	for _, g := range running {
		if g.Request == kmutex.Request(t) {
			return g.Token
		}
	}
	return kmutex.NoToken
}

// upstreamOf returns the upstream that a token stands for, as this host knows.
func (p *process) upstreamOf(q kmutex.Token) int {
	if p.c.cfg.Upstreams == 0 {
		return 0
	}
	spec, _ := p.h.Core.View().Pool(poolName)
	for i := range p.c.cfg.Upstreams {
		if spec.Upstream(q) == upstreamName(i) {
			return i
		}
	}
	p.c.Fail(fmt.Errorf("token %d is granted, and stands for no upstream", q))
	return 0
}

// bar tells the gateway which tokens it cannot use.
func (p *process) bar() {
	if len(p.barred) == 0 || p.gateway.Pool() == nil || p.gateway.Pool().State() == pool.Void {
		return
	}
	var set kmutex.TokenSet
	spec, _ := p.h.Core.View().Pool(poolName)
	for _, class := range spec.Classes {
		for i, sick := range p.barred {
			if sick && class.Upstream == upstreamName(i) {
				set.AddAll(class.Tokens)
			}
		}
	}
	p.gateway.Bar(set)
}

// upstream makes its own count of the requests in flight, at each if there are several.
type upstream struct {
	cluster *Cluster
	flying  []protocol.Request
	newest  uint64 // epoch in which a request was granted
	most    int
	served  int
	apart   int // most that paused processes had open beyond their leases
}

// start notes a request that begins, with a slot that was granted in an epoch. No more than k may be in flight then, also
// while those are that began before k was lowered. A gateway that was lost before k
// was raised is counted within the larger k.
func (u *upstream) start(p *process, t protocol.Request, epoch uint64) {
	u.flying = append(u.flying, t)
	c := u.cluster
	c.requests[t].began = c.Now()
	u.newest = max(u.newest, epoch)
	n, apart := 0, 0
	at := c.requests[t].at
	for _, f := range u.flying {
		if c.requests[f].at != at {
			continue
		}
		if c.processes[c.requests[f].host].stuck(c.requests[f]) {
			apart++
		} else {
			n++
		}
	}
	u.most, u.apart = max(u.most, n), max(u.apart, apart)
	p.tracef("request %d begins, %d in flight", t, n)
	limit := 0
	for _, ks := range c.ks[epoch : u.newest+1] {
		if ks != nil {
			limit = max(limit, ks[at])
		}
	}
	if n > limit+c.cfg.Slack {
		c.Fail(fmt.Errorf("%w: %d, limit %d", ErrTooMany, n, limit))
	}
}

// kOfEach returns the k of each upstream.
func (u *upstream) kOfEach(spec views.Pool) []int {
	if u.cluster.cfg.Upstreams == 0 {
		return []int{spec.K}
	}
	ks := make([]int, u.cluster.cfg.Upstreams)
	for i := range ks {
		ks[i], _ = spec.UpstreamK(upstreamName(i))
	}
	return ks
}

// stuck reports that a process cannot have closed the connection of a request of
// an incarnation whose lease is over, because it is paused, or has been until now.
func (p *process) stuck(r *Request) bool {
	now := p.c.Now()
	if h := r.holder; h != nil {
		return (p.c.Paused(p.h.Index) || p.woke == now && r.began < now) && p.h.Clock() >= h.until
	}
	return (p.c.Paused(p.h.Index) || p.woke == now && r.began < now) && p.gateway == r.gateway && !p.entitled()
}

func (u *upstream) end(t protocol.Request) {
	for i, f := range u.flying {
		if f == t {
			u.flying = append(u.flying[:i], u.flying[i+1:]...)
			return
		}
	}
}

// done lets the upstream answer a request.
func (u *upstream) done(t protocol.Request) {
	c := u.cluster
	r := c.requests[t]
	if r.state != inFlight {
		return
	}
	u.end(t)
	u.served++
	r.state = answered
	p := c.processes[r.host]
	c.Tracef("", "request %d ends", t)
	p.after(0, timerAnswer, uint64(t))
}

// Served returns how many requests the upstream has answered.
func (c *Cluster) Served() int { return c.upstream.served }

// Most returns the most requests that were in flight at once, without what paused
// processes could not close; that is the second.
func (c *Cluster) Most() (most, apart int) { return c.upstream.most, c.upstream.apart }
