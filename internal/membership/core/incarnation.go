package core

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// incarnation is who this gateway is now, and its end of the lease.
type incarnation struct {
	first   string // boot of the process
	boot    string
	rejoins int
	node    kmutex.Node   // 0 until the view has it
	voided  kmutex.Node   // the incarnation before, which has nothing in flight
	holder  *lease.Holder // nil until the view has it
	void    bool          // nothing can come of this incarnation any more
	joined  bool          // the view has it

	standing Standing // as it was told last
	joinAt   time.Duration
	toldOf   ID // the leader that another process has named
	missing  map[kmutex.Node]time.Duration
}

// follow takes in a view.
func (i *incarnation) follow(c *Core) {
	if i.void {
		return
	}
	v := c.machine.View()
	m, in := v.Named(c.cfg.Name)
	in = in && m.Boot == i.boot
	i.joined = in && m.Server == serverText(c.id)
	switch {
	case in && i.holder == nil && v.Lease > 0:
		i.node, i.holder = m.Node, lease.NewHolder(v.Terms(), m.Node, c.now)
	case !in && (i.node != 0 || v.LostBoot(c.cfg.Name, i.boot)):
		c.endStanding()
	}
}

// endStanding voids the incarnation.
func (c *Core) endStanding() {
	c.self.void, c.self.joined = true, false
	c.tellStanding(Standing{Void: true})
}

func (c *Core) tellStanding(s Standing) {
	if s == c.self.standing {
		return
	}
	if (s.Until == 0) != (c.self.standing.Until == 0) {
		text := "lease granted"
		if s.Until == 0 {
			text = "no lease"
		}
		c.log(slog.LevelDebug, text, slog.Uint64("node", uint64(c.self.node)))
	}
	c.self.standing, c.out.Standing = s, &s
}

// rejoin begins the next incarnation if the present one is void.
func (c *Core) rejoin() {
	c.lapse()
	i := &c.self
	if !i.void || c.diverged || c.leaving {
		return
	}
	i.rejoins++
	i.boot = fmt.Sprintf("%s.%d", i.first, i.rejoins)
	if i.node != 0 {
		i.voided = i.node
	}
	i.node, i.holder, i.void, i.joinAt = 0, nil, false, c.now
	i.standing.Void = false
	c.out.Boot = i.boot
	c.log(slog.LevelInfo, "rejoining as a new incarnation", slog.String("boot", i.boot), slog.Uint64("voided_node", uint64(i.voided)))
}

// lapse notes that the lease is over.
func (c *Core) lapse() {
	if i := &c.self; !i.void && i.holder != nil && i.holder.Over(c.now) {
		c.endStanding()
	}
}

// renew keeps the lease. A renewal does not wait for the answer to the one before: that may be
// lost, or under way.
func (c *Core) renew() {
	c.lapse()
	i := &c.self
	if i.void || i.holder == nil || c.now < i.holder.Due() {
		return
	}
	to := c.asks()
	if to == 0 || to != c.id && c.peers.conns[to] == nil || to == c.id && !c.Leads() {
		return // another leader, or the connection, makes it due
	}
	if c.election.asked == never {
		c.election.asked = c.now
	}
	sent := i.holder.Send(c.now)
	// All gateways renew at the same moments of the time of day, so that one round is for all.
	if interval := c.terms().Interval(); interval > 0 {
		i.holder.DueBy(c.now + interval - (time.Duration(c.cfg.Wall)*time.Millisecond+c.now)%interval)
	}
	r := &Renew{sent, c.report()}
	if to == c.id {
		c.receiveRenewal(c.id, r)
		return
	}
	c.send(to, Message{Renew: r})
}

// report is what this gateway sees of the others. One that leaves complains of nobody: it has let go
// of its links.
func (c *Core) report() leader.Report {
	r := leader.Report{View: c.machine.View().Number}
	if !c.leaving {
		r.Down = complaints(c.now, c.peers.down, leader.DownAfter(c.terms()))
		r.Missing = complaints(c.now, c.self.missing, leader.MissingAfter(c.terms()))
	}
	return r
}

// asks returns the process that grants leases as far as this one knows: also one that it has
// forgotten, which may live all the same.
func (c *Core) asks() ID {
	if c.lead != 0 {
		return c.lead
	}
	return c.election.leader
}

// maxComplaints bounds how many nodes a renewal complains about.
const maxComplaints = 256

// complaints returns the nodes whose trouble has lasted for d, in ascending order.
func complaints(now time.Duration, since map[kmutex.Node]time.Duration, d time.Duration) []kmutex.Node {
	var nodes []kmutex.Node
	for node, at := range since {
		if now-at >= d {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes[:min(len(nodes), maxComplaints)]
}

// granted takes in the leader's answer. Nobody else grants a lease.
func (c *Core) granted(from ID, g *Grant) {
	i := &c.self
	if g.Lost != "" || g.Renewal.Tag == 0 {
		if g.Lost == i.boot && !i.void || i.holder != nil && g.Renewal.Node == i.node && g.Renewal.Tag == 0 {
			c.endStanding()
		}
		return
	}
	if i.void || i.holder == nil || g.Renewal.Node != i.node || from != c.asks() {
		return
	}
	if c.diverged {
		return
	}
	if same, known := c.machine.Compare(g.Applied); known && !same {
		c.diverge(g.Applied.Index)
		return
	}
	if !i.holder.Granted(g.Renewal, c.now) {
		c.lapse()
		return
	}
	until, _ := i.holder.Until()
	c.election.granted = until - c.lease()*9/10
	if !c.leaving {
		c.tellStanding(Standing{Node: i.node, Until: until})
	}
}

// diverge ends this gateway's part: what it has applied is not what was agreed on.
func (c *Core) diverge(index uint64) {
	c.diverged = true
	c.log(slog.LevelError, "this gateway's state is not what the others have agreed on", slog.Uint64("index", index),
		slog.String("hint", "stop it, move its data directory away and start it again"))
	c.endStanding()
}

// renewNow makes a renewal due: there is another leader.
func (i *incarnation) renewNow(now time.Duration) {
	if i.holder != nil {
		i.holder.DueBy(now)
	}
	i.joinAt = now
}

// next returns when there is something to do.
func (i *incarnation) next(c *Core) time.Duration {
	at := c.now + lookAgain
	if !i.joined && !i.void {
		at = min(at, max(i.joinAt, c.now+time.Millisecond))
	}
	if i.void || i.holder == nil {
		return at
	}
	due := i.holder.Due()
	if due <= c.now { // it waits for a leader
		due = c.now + c.lease()/30
	}
	at = min(at, due)
	if until, held := i.holder.Until(); held {
		at = min(at, until)
	}
	return at
}

// askToJoin asks the leader to let this gateway in, or somebody who may know the leader.
func (c *Core) askToJoin() {
	i := &c.self
	if i.joined || i.void || c.now < i.joinAt {
		return
	}
	i.joinAt = c.now + joinInterval
	if c.leaving || len(c.peers.conns) == 0 && c.lead != c.id {
		return
	}
	if c.writing() > c.hangs()/3 {
		return // it may be out because its disk hangs: it would follow no view, and the pools would wait for it
	}
	j := &Join{
		Join: views.Join{
			Name: c.cfg.Name, Boot: i.boot, PeerAddr: c.cfg.Addr, Server: serverText(c.id), Voided: i.voided, Witness: c.cfg.Witness,
		},
		Reaches: c.peers.names(),
	}
	to := c.lead
	if to == 0 {
		to = c.knownLeader()
	}
	if to == c.id {
		c.receiveJoin(c.id, j)
		return
	}
	c.send(to, Message{Join: j})
}

// knownLeader returns the process that leads as others have said last; sometimes, and if none says so, any of them.
func (c *Core) knownLeader() ID {
	var in []ID
	var leads ID
	said := never
	for _, id := range sortedKeys(c.peers.conns) {
		p := c.peers.conns[id]
		if p.hello == nil || p.hello.Cluster == "" {
			continue
		}
		in = append(in, id)
		if to := p.hello.Leader; to != 0 && c.peers.conns[to] != nil && p.heard > said {
			leads, said = to, p.heard
		}
	}
	if leads != 0 && c.rand.IntN(4) > 0 || len(in) == 0 {
		return leads
	}
	return in[c.rand.IntN(len(in))]
}

func sortedKeys[V any](m map[ID]V) []ID { return slices.Sorted(maps.Keys(m)) }
