package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
)

// raft is what is true of the agreement, whoever knows it.
type raft struct {
	term   uint64
	leader int
	voters []int
	// ill is since when the leader has no majority; 0: it has one.
	ill time.Duration
}

const (
	electionCheck = 50 * time.Millisecond
	heartbeat     = leader.Interval
	evidence      = 300 * time.Millisecond
	roundPatience = 300 * time.Millisecond
)

// electionTimeout is how long raft's followers wait for a leader at most; if its
// process is gone they know sooner.
func (c *Cluster) electionTimeout() time.Duration {
	if c.hosts[c.raft.leader].process == nil {
		return evidence + electionCheck
	}
	return 2 * c.cfg.Terms.Lease / 5
}

// works reports whether a host's process runs.
func (c *Cluster) works(i int) bool { return c.hosts[i].process != nil && !c.Paused(i) }

// hears reports whether two hosts can talk both ways.
func (c *Cluster) hears(a, b int) bool {
	return c.works(a) && c.works(b) && (a == b || !c.IsCut(a, b) && !c.IsCut(b, a))
}

// quorum returns the voters that a host can talk to over connections that it opens,
// or has opened as a leader, if they are a majority.
func (c *Cluster) quorum(of int) []int {
	var with []int
	for _, v := range c.raft.voters {
		if c.dials(of, v) || c.hears(of, v) && c.hosts[of].process.feeds(v) {
			with = append(with, v)
		}
	}
	if len(with) <= len(c.raft.voters)/2 {
		return nil
	}
	return with
}

// feeds reports that a leader has a connection to a host.
func (p *process) feeds(host int) bool { return p.leads != nil && p.leads.feeds[host] }

// electable reports that a majority of the voters would vote for a host: those that
// it reaches and that have no newer log.
func (c *Cluster) electable(v int) bool {
	votes := 0
	for _, w := range c.quorum(v) {
		if c.hosts[w].index <= c.hosts[v].index {
			votes++
		}
	}
	return votes > len(c.raft.voters)/2
}

// watchLeader has another leader elected when the present one has had no majority
// for too long.
func (c *Cluster) watchLeader() {
	defer c.After(sim.World, electionCheck, sim.Timer{Kind: timerElection})
	if p := c.hosts[c.raft.leader].process; p != nil && p.leads != nil && c.quorum(c.raft.leader) != nil {
		c.raft.ill = 0
		return
	}
	if c.raft.ill == 0 {
		c.raft.ill = c.Now()
	}
	if c.Now()-c.raft.ill < c.electionTimeout() {
		return
	}
	start := c.Rand().IntN(len(c.raft.voters))
	for i := range c.raft.voters {
		if v := c.raft.voters[(start+i)%len(c.raft.voters)]; c.electable(v) {
			c.elect(v)
			return
		}
	}
}

// elect makes a voter the leader of the next term. Whoever of its majority led
// before does so no more; others may go on believing that they do.
func (c *Cluster) elect(v int) {
	if !c.electable(v) {
		return
	}
	with := c.quorum(v)
	c.raft.term++
	c.raft.leader, c.raft.ill = v, 0
	for _, w := range with {
		c.hosts[w].term = c.raft.term
		c.hosts[w].process.leads = nil
	}
	p := c.hosts[v].process
	p.leads = &leadership{
		p: p, term: c.raft.term, voters: slices.Clone(c.raft.voters), log: new(agreed),
		feeds: make([]bool, len(c.hosts)), doubts: make(map[kmutex.Node]time.Duration),
		dead: make(map[int]time.Duration), away: make(map[int]time.Duration),
	}
	p.leads.grantor = lease.NewGrantor(c.cfg.Terms, c.raft.term, p.clock())
	p.rules = leader.New(c.cfg.Terms, p.leads.grantor, p.rules, p.clock())
	p.leads.rules = p.rules
	p.tracef("leads term %d", c.raft.term)
	p.leads.work()
}

// leadership is what a process does as the leader of a term, or as one that takes
// itself for it.
type leadership struct {
	p       *process
	term    uint64
	voters  []int
	grantor *lease.Grantor
	rules   *leader.Rules
	// doubts are the members that do not answer dials, and since when.
	doubts map[kmutex.Node]time.Duration
	// feeds are the hosts that the leader has a connection to.
	feeds []bool
	// dead and away are the hosts that are not alive, or no members, and since when.
	dead, away map[int]time.Duration
	log        *agreed // as far as it has seen it, at first nothing
	// patience is until when the round that goes on is waited for.
	patience time.Duration
}

// propose appends to the log, if this still is the leader.
func (l *leadership) propose(change func(*agreed) bool) bool {
	c := l.p.c
	with := c.quorum(l.p.host)
	if c.raft.term != l.term || with == nil || !c.commit(change) {
		return false
	}
	for _, v := range with {
		c.hosts[v].index = c.log.Index
	}
	return true
}

// work does what a leader does all the time.
func (l *leadership) work() {
	c := l.p.c
	defer l.p.after(heartbeat, timerLead, l.term)
	now := l.p.clock()
	if c.raft.term == l.term {
		l.change(leader.NextStep(l.servers()))
		l.follow(now)
		l.judge(now)
		if l.p.leads != l {
			return // it has handed the lead over
		}
		l.follow(now)
	}
	for i := range c.hosts {
		if i != l.p.host && l.connects(i) {
			c.Send(l.p.host, i, "", &beatMsg{l.term, &l.log.View})
		}
	}
	l.p.onBeat(l.p.host, &beatMsg{l.term, &l.log.View})
	if l.p.leads == l && l.grantor.Waiting() && now >= l.patience {
		l.patience = now + roundPatience
		names := make([]string, len(l.voters))
		for i, v := range l.voters {
			names[i] = strconv.Itoa(v)
		}
		round := l.grantor.Begin(func() []string { return names })
		for _, v := range l.voters {
			if l.p.leads == l {
				c.Send(l.p.host, v, "", &askMsg{l.term, round})
			}
		}
	}
}

// follow has the rules see the newest view.
func (l *leadership) follow(now time.Duration) {
	if newest := &l.p.c.log; l.p.c.raft.term == l.term && newest.Index != l.log.Index {
		log := *newest // its slices never change
		l.log = &log
		l.rules.Follow(log.forRules(), now)
	}
}

// connects keeps the connection to a host on which the log goes there, and reports
// whether there is one.
func (l *leadership) connects(to int) bool {
	c, from := l.p.c, l.p.host
	switch {
	case c.dials(from, to):
		l.feeds[to] = true
	case c.bars[[2]int{from, to}] && (!c.hears(from, to) || c.hosts[to].process == nil):
		l.feeds[to] = false // and cannot be opened again
	}
	return l.feeds[to] || !c.bars[[2]int{from, to}]
}

// change makes a change of who votes, if there is a majority. It reports whether it has made one.
func (l *leadership) change(step leader.Step) bool {
	c := l.p.c
	defer func() { l.voters = slices.Clone(c.raft.voters) }()
	if step.Do == leader.Nothing || c.quorum(l.p.host) == nil {
		return false
	}
	host, err := strconv.Atoi(step.Server)
	if err != nil {
		panic(err) // the names are from servers
	}
	if step.Do == leader.Promote {
		c.hosts[host].term = max(c.hosts[host].term, l.term)
		c.raft.voters = append(slices.Clone(c.raft.voters), host)
	} else {
		c.raft.voters = slices.DeleteFunc(slices.Clone(c.raft.voters), func(v int) bool { return v == host })
	}
	l.p.tracef("%s %d: voters %v", step.Do, host, c.raft.voters)
	return true
}

// servers are the voters and the members, as the leader's rules see them.
func (l *leadership) servers() []leader.Server {
	c, now := l.p.c, l.p.clock()
	hosts := slices.Clone(c.raft.voters)
	for _, m := range c.log.Members {
		if !slices.Contains(hosts, m.Host) {
			hosts = append(hosts, m.Host)
		}
	}
	servers := make([]leader.Server, len(hosts))
	for i, host := range hosts {
		m, in := c.log.Named(host)
		p := c.hosts[host].process
		s := leader.Server{
			ID: strconv.Itoa(host), Voter: slices.Contains(c.raft.voters, host), Leader: host == l.p.host, Node: m.Node,
			Alive: host == l.p.host || c.dials(l.p.host, host) || c.hears(l.p.host, host) && l.feeds[host],
			Left:  c.hosts[host].left || p != nil && p.leaving && !in,
		}
		s.Failed = !s.Alive && lasts(l.dead, host, now) > leader.SwapAfter
		s.Pending = !in && !s.Left && p != nil
		s.Away = !in && !s.Left && lasts(l.away, host, now) <= leader.AwayFor
		if s.Alive {
			delete(l.dead, host)
		}
		if in {
			delete(l.away, host)
		}
		servers[i] = s
	}
	return servers
}

// lasts returns for how long it has been noted of a host.
func lasts(since map[int]time.Duration, host int, now time.Duration) time.Duration {
	if _, noted := since[host]; !noted {
		since[host] = now
	}
	return now - since[host]
}

// judge carries out what the leader's rules say.
func (l *leadership) judge(now time.Duration) {
	verdict := l.rules.Judge(l.sight(now), now)
	nodes := make([]kmutex.Node, len(verdict.Suspend))
	for i, s := range verdict.Suspend {
		nodes[i] = s.Node
		l.p.tracef("suspects n%d: %s", s.Node, s.Reason)
	}
	l.suspend(nodes)
	l.expire(verdict.Expire)
	if verdict.HandOver {
		l.rules.HandedOver(now)
		l.handOver()
	}
}

// handOver has another voter elected that this leader reaches. If it has the only vote, another
// member gets one first.
func (l *leadership) handOver() {
	c := l.p.c
	if len(c.raft.voters) == 1 {
		for _, m := range c.log.Members {
			if m.Host != l.p.host && c.dials(l.p.host, m.Host) && !c.hosts[m.Host].leaving {
				l.change(leader.Step{Do: leader.Promote, Server: strconv.Itoa(m.Host)})
				break
			}
		}
	}
	with := c.quorum(l.p.host)
	c.Rand().Shuffle(len(with), func(i, j int) { with[i], with[j] = with[j], with[i] })
	for _, v := range with {
		if v != l.p.host && c.raft.term == l.term && c.electable(v) {
			l.p.tracef("hands the lead over to %d", v)
			c.elect(v)
			return
		}
	}
}

// sight returns what the leader sees for itself.
func (l *leadership) sight(now time.Duration) leader.Observation {
	c := l.p.c
	s := leader.Observation{Self: l.p.name, Boots: make(map[string]string, len(c.hosts)), Unreachable: make(map[kmutex.Node]time.Duration)}
	for i := range c.hosts {
		if c.gossips(l.p.host, i) {
			s.Boots[c.hosts[i].process.name] = c.hosts[i].process.bootName
		}
	}
	s.Outsiders = l.shut(s.Boots)
	quiet := l.rules.Quiet(now)
	for _, m := range c.log.Members {
		answers := m.Host == l.p.host || c.dials(l.p.host, m.Host)
		if answers || !c.linkDown(l.p.host, m.Host) && !slices.Contains(quiet, m.Node) {
			delete(l.doubts, m.Node)
			continue
		}
		since, known := l.doubts[m.Node]
		if !known {
			since = now
			l.doubts[m.Node] = now
		}
		if now-since > evidence {
			s.Unreachable[m.Node] = since
		}
	}
	return s
}

// shut returns the gateways that are no members and answer another member, if there is
// one, and not the leader.
func (l *leadership) shut(boots map[string]string) []string {
	c := l.p.c
	var names []string
	for i := range c.hosts {
		p := c.hosts[i].process
		if p == nil || boots[p.name] == "" || c.Passes(l.p.host, i) {
			continue
		}
		m, in := c.log.Named(i)
		if in && m.Boot == p.boot {
			continue
		}
		if len(c.log.Members) == 1 || slices.ContainsFunc(c.log.Members, func(m fairk.Member) bool {
			return c.asks(l.p.host, m.Host) && c.Passes(m.Host, i)
		}) {
			names = append(names, p.name)
		}
	}
	return names
}

// gossips reports that gossip tells a host of another: there is a way, by a third one
// if need be. New connections are not needed for it.
func (c *Cluster) gossips(to, from int) bool {
	if c.hears(to, from) {
		return true
	}
	if !c.works(from) || !c.works(to) {
		return false
	}
	for by := range c.hosts {
		if c.hears(to, by) && c.hears(by, from) {
			return true
		}
	}
	return false
}

// fit reports whether the leader lets the process on a host in.
func (l *leadership) fit(host int) bool {
	c, now := l.p.c, l.p.clock()
	p := c.hosts[host].process
	if p == nil || !c.dials(l.p.host, host) || l.rules.Waits(p.name, now) {
		return false
	}
	var unreached []string
	for i := range c.hosts {
		if other := c.hosts[i].process; other != nil && c.gossips(host, i) && !c.Passes(host, i) {
			unreached = append(unreached, other.name)
		}
	}
	l.follow(now)
	return l.rules.LetIn(p.name, unreached, l.sight(now), now) == ""
}

// Waits reports that the leader has a gateway stay out for a while, since its links or
// its reports failed again and again.
func (c *Cluster) Waits(host int) bool {
	p, l := c.hosts[host].process, c.leader()
	return p != nil && l != nil && l.rules.Waits(p.name, l.p.clock())
}

func (l *leadership) suspend(nodes []kmutex.Node) bool {
	if len(nodes) == 0 {
		return false
	}
	return l.propose(func(a *agreed) bool {
		changed := false
		for _, n := range nodes {
			if _, in := a.Member(n); in {
				a.lose(n, true)
				changed = true
			}
		}
		a.beginEpoch()
		return changed
	})
}

// expire gives back what lost members owe, as their leases have run out.
func (l *leadership) expire(nodes []kmutex.Node) {
	if len(nodes) == 0 {
		return
	}
	l.propose(func(a *agreed) bool {
		for _, n := range nodes {
			a.unlease(n)
		}
		a.beginEpoch()
		return true
	})
}

// take takes in what others ask of a leader.
func (l *leadership) take(from int, m any) {
	c := l.p.c
	switch m := m.(type) {
	case *joinMsg:
		switch {
		case c.hosts[m.host].left:
		case slices.ContainsFunc(l.log.lost, func(o lost) bool { return o.host == m.host && o.boot == m.boot }):
			c.Send(l.p.host, from, "", &refuseJoinMsg{m.boot})
		case l.fit(m.host):
			l.propose(func(a *agreed) bool { return a.join(m.host, m.boot, m.voided) })
		}
	case *leaveMsg:
		l.propose(func(a *agreed) bool {
			if _, in := a.Member(m.node); !in {
				return false
			}
			a.lose(m.node, false)
			a.beginEpoch()
			return true
		})
		for l.change(leader.TakeOut(l.servers(), strconv.Itoa(from))) {
		}
	case *recoverMsg:
		l.propose(func(a *agreed) bool {
			if a.Epoch != m.epoch {
				return false
			}
			a.beginEpoch()
			return true
		})
	case *renewMsg:
		if !l.rules.Receive(m.renewal, m.report, l.p.clock()) && l.log.isLost(m.renewal.Node) {
			c.Send(l.p.host, from, "", &refuseMsg{m.renewal})
		}
	case *tellMsg:
		granted, decided := l.grantor.Answer(m.round, strconv.Itoa(m.voter), m.term)
		if decided {
			l.patience = 0
			l.rules.Confirmed()
		}
		for _, r := range granted {
			if member, in := l.log.Member(r.Node); in {
				c.Send(l.p.host, member.Host, "", &grantMsg{r})
			}
		}
		if l.grantor.Deposed() && l.p.leads == l {
			l.p.tracef("leads no more")
			l.p.leads = nil
		}
	}
}

// onBeat takes in who leads.
func (p *process) onBeat(from int, m *beatMsg) {
	h := &p.c.hosts[p.host]
	if m.term < h.term || m.term < p.heard {
		return
	}
	if h.term = m.term; p.leads != nil && p.leads.term < m.term {
		p.leads = nil
	}
	h.index = max(h.index, m.view.Index)
	if p.leader != from {
		p.renewal = lease.Renewal{} // its connection is to another
	}
	p.leader, p.heard = from, m.term
	p.follow(m.view)
}

// onAsk answers a leader that wants to know whether it still is one.
func (p *process) onAsk(from int, m *askMsg) {
	h := &p.c.hosts[p.host]
	h.term = max(h.term, m.term)
	p.c.Send(p.host, from, "", &tellMsg{round: m.round, voter: p.host, term: h.term})
}
