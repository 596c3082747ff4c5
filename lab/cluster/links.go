package cluster

import (
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// link is what is special about the link between two hosts: it is down, or is about
// to be. Links that nothing is known of are up. Its queues are the engine's.
type link struct {
	// lost is since when nothing passes, owed since when an end waits for the other to
	// acknowledge something, and down since when both ends know that there is no
	// connection; never: it is not so.
	lost, owed, down time.Duration
	// stuck: a long message went where none passes, and the rest of its connection waits.
	stuck bool
}

const never = time.Duration(-1)

// Bar lets a host open no new connections to another. Those that are open go on.
func (c *Cluster) Bar(from, to int) {
	c.tracef("", "host %d: can open no connections to %d", from, to)
	c.bars[[2]int{from, to}] = true
	c.doubt(from, to)
}

// Unbar ends it.
func (c *Cluster) Unbar(from, to int) {
	delete(c.bars, [2]int{from, to})
	c.checkLinks(from)
}

// Narrow has long messages of a host to another get lost over and over, though short ones
// pass: a path whose MTU is smaller than the hosts think. What is behind a lost one on its
// connection waits for it. A link that was down stays so: package transport does not take
// one for up over which nothing long has passed.
func (c *Cluster) Narrow(from, to int) {
	c.tracef("", "host %d: its long messages to %d are lost", from, to)
	c.narrows[[2]int{from, to}] = true
}

// Widen ends it.
func (c *Cluster) Widen(from, to int) {
	delete(c.narrows, [2]int{from, to})
	c.checkLinks(from)
}

// Passes reports whether a host can open a connection to another, and long messages pass
// over it in both directions.
func (c *Cluster) Passes(from, to int) bool { return c.dials(from, to) && !c.narrow(from, to) }

func (c *Cluster) narrow(a, b int) bool { return c.narrows[[2]int{a, b}] || c.narrows[[2]int{b, a}] }

// sticks has a link wait for a long message that does not pass.
func (c *Cluster) sticks(from, to int, kind string) {
	if !c.narrows[[2]int{from, to}] {
		return
	}
	switch kind {
	case "baton", "report", "answer", "push", "holdings":
		if l := c.doubt(from, to); !l.stuck && l.down == never {
			l.stuck = true
			c.Hold(from, to, overLink)
		}
	}
}

// Lose has half of what a host's pool writes to another's get lost, the messages of the
// machines apart: reports, answers, copies of tickets. The sender is told that the
// connection broke, also of some that arrived.
func (c *Cluster) Lose(from, to int) {
	c.tracef("", "host %d: half of its letters to %d are lost", from, to)
	c.losses[[2]int{from, to}] = true
}

// Unlose ends it.
func (c *Cluster) Unlose(from, to int) { delete(c.losses, [2]int{from, to}) }

// hangUp closes the connection that a host has to another for calls.
func (c *Cluster) hangUp(from, to int) { delete(c.calls, [2]int{from, to}) }

// Cut lets nothing pass from a host to another.
func (c *Cluster) Cut(from, to int) {
	c.Engine.Cut(from, to)
	c.doubt(from, to)
}

// Heal ends it.
func (c *Cluster) Heal(from, to int) {
	c.Engine.Heal(from, to)
	c.checkLinks(from)
}

// dials reports whether a host can open a connection to another and talk over it.
func (c *Cluster) dials(from, to int) bool {
	return c.hears(from, to) && (from == to || !c.bars[[2]int{from, to}])
}

// asks reports whether a host can call another: over a connection that it opens, or over one
// that it has from earlier calls.
func (c *Cluster) asks(from, to int) bool {
	return c.dials(from, to) || c.hears(from, to) && c.calls[[2]int{from, to}]
}

// doubt has the link between two hosts looked at from now on.
func (c *Cluster) doubt(a, b int) *link {
	if l := c.links[a][b]; l != nil {
		return l
	}
	l := &link{lost: never, owed: never, down: never}
	for _, end := range [][2]int{{a, b}, {b, a}} {
		if c.links[end[0]] == nil {
			c.links[end[0]] = make(map[int]*link)
		}
		c.links[end[0]][end[1]] = l
	}
	return l
}

// doubtAll has all links of a host looked at. Fresh: another incarnation begins
// there, which has none yet.
func (c *Cluster) doubtAll(host int, fresh bool) {
	for other := range c.hosts {
		if other == host || c.hosts[host].process == nil && c.hosts[other].process == nil {
			continue
		}
		l := c.doubt(host, other)
		if fresh && l.down == never {
			c.breaks(host, other, l)
		}
	}
	c.checkLinks(host)
}

// checkAllLinks looks at all links that are in doubt.
func (c *Cluster) checkAllLinks() {
	for host := range c.links {
		if len(c.links[host]) > 0 {
			c.checkLinks(host)
		}
	}
}

// checkLinks looks at the links of a host that are in doubt, in order: what a link
// held back is sent then.
func (c *Cluster) checkLinks(host int) {
	others := make([]int, 0, len(c.links[host]))
	for other := range c.links[host] {
		others = append(others, other)
	}
	slices.Sort(others)
	for _, other := range others {
		c.checkLink(host, other)
	}
}

// owe notes that what is sent now is not acknowledged as long as nothing passes.
func (c *Cluster) owe(from, to int, m any) {
	if l := c.links[from][to]; l != nil && l.lost != never && l.owed == never && overLink(m) {
		l.owed = c.Now()
	}
}

// silent reports that the ends of a link give it up: as late as they may, docs/adr/0033.
func (c *Cluster) silent(l *link) bool {
	eighth := c.cfg.Terms.Lease / 8
	return c.Now()-l.lost >= 7*eighth || l.owed != never && c.Now()-l.owed >= 5*eighth
}

// checkLink follows one link. Pings that get no answer break it; a process that ends does
// so at once. Either end may dial.
func (c *Cluster) checkLink(a, b int) {
	l := c.links[a][b]
	if l == nil {
		return
	}
	pa, pb := c.hosts[a].process, c.hosts[b].process
	hears := c.hears(a, b)
	if narrow := c.narrow(a, b); !hears || narrow && l.stuck {
		if l.lost == never {
			l.lost = c.Now()
		}
		if !hears && (pa == nil || pb == nil || c.Now()-l.lost >= c.cfg.Terms.Lease/3) { // calls time out
			c.hangUp(a, b)
			c.hangUp(b, a)
		}
		if l.down == never && (pa == nil || pb == nil || c.silent(l)) {
			c.breaks(a, b, l)
		}
		return
	}
	l.lost, l.owed = never, never
	if l.down != never {
		members := pa.gateway.Node() != 0 && pb.gateway.Node() != 0
		if !members || !c.Passes(a, b) && !c.Passes(b, a) {
			return
		}
		c.lost(a, b)
		c.lost(b, a)
	}
	if l.down != never || l.stuck {
		c.Hold(a, b, nil)
		c.Hold(b, a, nil)
	}
	delete(c.links[a], b)
	delete(c.links[b], a)
}

// breaks notes that a link is down. What the gateways send each other is held back
// until it is up again; other connections are not its business.
func (c *Cluster) breaks(a, b int, l *link) {
	l.down = c.Now()
	c.Hold(a, b, overLink)
	c.Hold(b, a, overLink)
}

// lost has the letters get lost that a link held back: only messages of the machines
// outlast its connection.
func (c *Cluster) lost(from, to int) {
	c.Withdraw(from, to, func(held any) bool {
		told, is := fairk.Undelivered(held)
		if is {
			c.Engine.Send(to, from, told)
		}
		return is
	})
}

// overLink reports that a message goes over the link, and not over a connection of
// raft's or of the leases.
func overLink(m any) bool {
	_, ok := m.(interface{ Kind() string })
	return ok
}

// down returns the members that a process complains about: its link to them has been
// down for a while.
func (p *process) down() []kmutex.Node {
	var nodes []kmutex.Node
	for other, l := range p.c.links[p.host] {
		m, in := p.gateway.View().Named(other)
		if in && l.down != never && p.c.Now()-l.down >= leader.DownAfter(p.c.cfg.Terms) {
			nodes = append(nodes, m.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// linkDown reports that the link between two hosts is down.
func (c *Cluster) linkDown(a, b int) bool {
	l := c.links[a][b]
	return l != nil && l.down != never
}

// missing returns the members that a process complains about as the home of the pool:
// it has waited for their reports for a while.
func (p *process) missing() []kmutex.Node {
	nodes, since := p.gateway.Pool().Missing()
	if p.c.Now()-since < leader.MissingAfter(p.c.cfg.Terms) {
		return nil
	}
	return nodes
}
