package core

import (
	"log/slog"
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
	// warned are the clusters that were warned of.
	warned map[string]bool
}

// conn is a connection to a process.
type conn struct {
	name  string
	hello *Hello // nil: none yet
	trip  time.Duration
	since time.Duration
	beat  time.Duration // when a process without a vote was sent a heartbeat
	told  uint64        // the number of the hello that it was sent last
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
		warned: make(map[string]bool),
	}
}

func (c *Core) connected(e Connected) {
	c.peers.conns[e.To] = &conn{name: e.Name, trip: e.Trip, since: c.now}
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
		delete(c.l.waiting, from)
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
	wanted := c.wanted()
	names := make([]string, 0, len(wanted))
	for name := range wanted {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, has := c.peers.named(name); has {
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
			c.out.Dial = append(c.out.Dial, Dial{name, addrs[(p.failed/dialsFailed)%len(addrs)], c.answers(), c.connects()})
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
	if e.OK {
		p.failed = 0
	} else {
		p.failed++
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

// gone reports strong evidence that a process does not run: it has no connection, and three dials
// failed or led to another process.
func (c *Core) gone(id ID) bool {
	if c.peers.conns[id] != nil || id == c.id {
		return false
	}
	name := c.nameOf(id)
	if _, other := c.peers.named(name); other {
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

// trip is the longest round trip to a voter.
func (c *Core) trip() time.Duration {
	var most time.Duration
	for _, v := range c.conf.GetVoters() {
		if p := c.peers.conns[ID(v)]; p != nil {
			most = max(most, p.trip)
		}
	}
	return most
}

// hello says who this process is.
func (c *Core) hello() Hello {
	return Hello{
		Name: c.cfg.Name, Boot: c.self.boot, Addr: c.cfg.Addr, Cluster: c.stored.note.Cluster,
		Leader: c.lead, Agreed: c.agreed(), Last: c.last(), Sees: c.sees(), Founders: c.stored.note.Founders,
	}
}

func (c *Core) sayHello(to ID) {
	h := c.hello()
	c.peers.conns[to].told = c.hellos
	c.send(to, Message{Hello: &h})
}

// greet says hello again where it matters to those who wait for it: what this process wants
// to found, or has, and who it is now.
func (c *Core) greet() {
	h := c.hello()
	if h.Boot == c.said.Boot && h.Cluster == c.said.Cluster && slices.Equal(h.Sees, c.said.Sees) && len(h.Founders) == len(c.said.Founders) {
		return
	}
	c.said = h
	c.hellos++
	for _, id := range sortedKeys(c.peers.conns) {
		if c.peers.conns[id].told < c.hellos {
			c.sayHello(id)
		}
	}
}

func (c *Core) foreign(h *Hello) {
	if c.peers.warned[h.Cluster] {
		return
	}
	c.peers.warned[h.Cluster] = true
	c.log(slog.LevelWarn, "a gateway of another cluster is not let in", slog.String("name", h.Name), slog.String("peer_address", h.Addr),
		slog.String("cluster", h.Cluster), slog.String("own_cluster", c.stored.note.Cluster),
		slog.String("hint", "to let it join, stop it and move its data_dir away; to keep it apart, take it off the join list"))
}
