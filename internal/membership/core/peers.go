package core

import (
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// peers are the other processes and gateways, as this one knows them.
type peers struct {
	gossip []Gateway
	conns  map[ID]*conn
	// probes are the dials of gateways without a connection, by name.
	probes map[string]*probe
	// down is since when there is no connection to a member.
	down map[kmutex.Node]time.Duration
	next time.Duration // when to dial next
}

// conn is a connection to a process.
type conn struct {
	name  string
	hello *Hello        // nil: none yet
	heard time.Duration // when it came
	trip  time.Duration
	// answered is when it answered this leader last; the lead or the connection began, if that was later.
	answered time.Duration
	beat     time.Duration // when a process without a vote was sent a heartbeat
}

// probe is what is known of a gateway without a connection.
type probe struct {
	next time.Duration // of the next dial
	open int           // dials without an answer
	// failed dials in a row, and when the first of them began.
	failed int
	since  time.Duration
}

func newPeers() peers {
	return peers{
		conns: make(map[ID]*conn), probes: make(map[string]*probe), down: make(map[kmutex.Node]time.Duration),
	}
}

func (c *Core) connected(e Connected) {
	if c.l != nil {
		c.l.forgetDone(e.To)
	}
	c.peers.conns[e.To] = &conn{name: e.Name, answered: c.now}
	delete(c.peers.probes, e.Name)
	c.sayHello(e.To)
}

func (c *Core) disconnected(from ID) {
	if c.peers.conns[from] == nil {
		return
	}
	delete(c.peers.conns, from)
	if c.l != nil {
		c.node.ReportUnreachable(uint64(from))
	}
	c.peers.next = c.now
}

// named returns a process of the gateway with that name to which there is a connection.
func (p *peers) named(name string) (id ID, ok bool) {
	for other, conn := range p.conns {
		if conn.name == name && (!ok || other < id) {
			id, ok = other, true
		}
	}
	return id, ok
}

// names returns the gateways to which there are connections, in order.
func (p *peers) names() []string {
	names := make([]string, 0, len(p.conns))
	for _, conn := range p.conns {
		names = append(names, conn.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// seen returns what discovery knows of a gateway.
func (p *peers) seen(name string) (Gateway, bool) {
	i := slices.IndexFunc(p.gossip, func(g Gateway) bool { return g.Name == name })
	if i < 0 {
		return Gateway{}, false
	}
	return p.gossip[i], true
}

// wanted returns where the gateways are to which there should be connections: first where the
// view has them.
func (c *Core) wanted() map[string][]string {
	at := make(map[string][]string)
	add := func(name, addr string) {
		if name != c.cfg.Name && addr != "" && !slices.Contains(at[name], addr) {
			at[name] = append(at[name], addr)
		}
	}
	for _, m := range c.machine.View().Members {
		add(m.Name, m.PeerAddr)
	}
	for _, g := range c.peers.gossip {
		if g.Alive {
			add(g.Name, g.Addr)
		}
	}
	for _, s := range c.servers {
		add(s.Name, s.Addr)
	}
	for _, f := range c.stored.note.Founders {
		add(f.Name, f.Addr)
	}
	return at
}

// dial tries the gateways without a connection.
func (c *Core) dial() {
	if c.now < c.peers.next {
		return
	}
	c.peers.next = c.now + lookAgain
	wanted, doubted := c.wanted(), c.doubted()
	names := make([]string, 0, len(wanted))
	for name := range wanted {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		id, has := c.peers.named(name)
		if has && !doubted[name] {
			delete(c.peers.probes, name)
			continue
		}
		p := c.peers.probes[name]
		if p == nil {
			p = &probe{next: c.now}
			c.peers.probes[name] = p
		}
		if p.open < dialsFailed && c.now >= p.next {
			if p.failed+p.open == 0 {
				p.since = c.now
			}
			addrs := wanted[name]
			d := Dial{name, addrs[(p.failed/dialsFailed)%len(addrs)], has, c.answers(), c.connects()}
			if has {
				d.Most = max(d.First, min(4*c.peers.conns[id].trip, d.Most))
			}
			c.out.Dial = append(c.out.Dial, d)
			p.open++
			p.next = c.now + min(dialInterval<<min(max(p.failed-dialsFailed, 0), 4), mostDialInterval)
		}
		if p.open < dialsFailed {
			c.peers.next = min(c.peers.next, p.next)
		}
	}
	for name := range c.peers.probes {
		if wanted[name] == nil {
			delete(c.peers.probes, name)
		}
	}
	c.noteDown()
}

func (c *Core) dialed(e Dialed) {
	p := c.peers.probes[e.Name]
	if p == nil {
		return
	}
	p.open--
	if e.Err == nil {
		p.failed = 0
	} else {
		p.failed++
		c.unanswered(e.Name, e.Err)
	}
	c.peers.next = min(c.peers.next, max(p.next, c.now))
}

// noteDown keeps since when members have no connection.
func (c *Core) noteDown() {
	down := make(map[kmutex.Node]time.Duration)
	for _, m := range c.machine.View().Members {
		if m.Name == c.cfg.Name || c.peers.conns[serverID(m.Server)] != nil {
			continue
		}
		since, known := c.peers.down[m.Node]
		if !known {
			since = c.now
		}
		down[m.Node] = since
	}
	c.peers.down = down
}

// doubted returns the gateways that have not renewed for a while, if this one leads. A connection
// takes longer to notice that a host is gone.
func (c *Core) doubted() map[string]bool {
	names := make(map[string]bool)
	if c.l == nil || c.l.rules == nil {
		return names
	}
	for _, node := range c.l.rules.Quiet(c.now) {
		if m, in := c.machine.View().Member(node); in {
			names[m.Name] = true
		}
	}
	return names
}

// gone reports strong evidence that a process does not run: it has no connection, or is in doubt, and
// three dials failed or led to another process.
func (c *Core) gone(id ID) bool {
	if id == c.id {
		return false
	}
	name := c.nameOf(id)
	if other, connected := c.peers.named(name); connected && other != id {
		return true
	}
	p := c.peers.probes[name]
	return p != nil && p.failed >= dialsFailed
}

// nameOf returns the gateway whose process it is; empty if nobody knows.
func (c *Core) nameOf(id ID) string {
	if id == c.id {
		return c.cfg.Name
	}
	if p := c.peers.conns[id]; p != nil {
		return p.name
	}
	for _, s := range c.servers {
		if s.ID == id {
			return s.Name
		}
	}
	if m, in := c.member(id); in {
		return m.Name
	}
	return ""
}

// trip is how long it takes to ask a majority of the voters, a quarter of a lease at most: where that takes longer
// there are no leases anyway. One of them that is slow, be it the leader, does not count.
func (c *Core) trip() time.Duration {
	voters := c.conf.GetVoters()
	trips := make([]time.Duration, 0, 8)
	others := len(voters)/2 + 1 // that make a majority
	for _, v := range voters {
		if p := c.peers.conns[ID(v)]; p != nil {
			trips = append(trips, p.trip)
		} else if ID(v) == c.id {
			others--
		}
	}
	if others = min(others, len(trips)); others == 0 {
		return 0
	}
	slices.Sort(trips)
	return min(trips[others-1], c.pacing()/4)
}

// leadersTrip is the longer of the round trips to the leader and to a majority.
func (c *Core) leadersTrip() time.Duration {
	if p := c.peers.conns[c.lead]; p != nil {
		return max(c.trip(), p.trip)
	}
	return c.trip()
}

// hello says who this process is.
func (c *Core) hello() Hello {
	return Hello{
		Name: c.cfg.Name, Boot: c.self.boot, Addr: c.cfg.Addr, Cluster: c.stored.note.Cluster,
		Leader: c.lead, Agreed: c.agreed(), Last: c.last(), Leaving: c.leaving, Sees: c.sees(), Founders: c.stored.note.Founders,
	}
}

func (c *Core) sayHello(to ID) {
	h := c.hello()
	c.send(to, Message{Hello: &h})
}

// greet says hello again where it matters to those who wait for it: what this process wants
// to found, or has, who it is now, and that it leaves.
func (c *Core) greet() {
	h := c.hello()
	if h.Boot == c.said.Boot && h.Cluster == c.said.Cluster && h.Leaving == c.said.Leaving && slices.Equal(h.Sees, c.said.Sees) && len(h.Founders) == len(c.said.Founders) {
		return
	}
	c.said = h
	for _, id := range sortedKeys(c.peers.conns) {
		c.sayHello(id)
	}
}
