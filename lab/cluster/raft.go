package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/sim"
	"github.com/kgate/kgate/membership/leader"
	"github.com/kgate/kgate/membership/lease"
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
	maxVoters       = 5
	electionTimeout = 400 * time.Millisecond
	electionCheck   = 50 * time.Millisecond
	heartbeat       = 50 * time.Millisecond
	evidence        = 300 * time.Millisecond
	roundPatience   = 300 * time.Millisecond
)

// works reports whether a host's process runs.
func (c *Cluster) works(i int) bool { return c.Alive(i) && !c.Paused(i) }

// hears reports whether two hosts can talk both ways.
func (c *Cluster) hears(a, b int) bool {
	return c.works(a) && c.works(b) && (a == b || !c.IsCut(a, b) && !c.IsCut(b, a))
}

// quorum returns the voters that a host can talk to, if they are a majority.
func (c *Cluster) quorum(of int) []int {
	var with []int
	for _, v := range c.raft.voters {
		if c.hears(of, v) {
			with = append(with, v)
		}
	}
	if len(with) <= len(c.raft.voters)/2 {
		return nil
	}
	return with
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
	if c.Now()-c.raft.ill < electionTimeout {
		return
	}
	start := c.Rand().IntN(len(c.raft.voters))
	for i := range c.raft.voters {
		if v := c.raft.voters[(start+i)%len(c.raft.voters)]; c.quorum(v) != nil {
			c.elect(v)
			return
		}
	}
}

// elect makes a voter the leader of the next term. Whoever of its majority led
// before does so no more; others may go on believing that they do.
func (c *Cluster) elect(v int) {
	with := c.quorum(v)
	if with == nil {
		return
	}
	c.raft.term++
	c.raft.leader, c.raft.ill = v, 0
	for _, w := range with {
		c.hosts[w].term = c.raft.term
		c.hosts[w].process.leads = nil
	}
	p := c.hosts[v].process
	p.leads = &leadership{p: p, term: c.raft.term, voters: slices.Clone(c.raft.voters), seen: make([]time.Duration, len(c.hosts))}
	p.leads.staged = new(fairk.View)
	p.leads.grantor = lease.NewGrantor(c.cfg.Terms, c.raft.term, p.clock())
	p.leads.rules = leader.New(c.cfg.Terms, p.leads.grantor, nil, p.clock())
	for i := range p.leads.seen {
		p.leads.seen[i] = p.clock()
	}
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
	// seen is when a host's process was last seen to run, by the leader's clock.
	seen   []time.Duration
	staged *fairk.View // the newest view that it knows, at first of none
	// patience is until when the round that goes on is waited for.
	patience time.Duration
}

// propose appends to the log, if this still is the leader.
func (l *leadership) propose(change func(*agreed) bool) bool {
	c := l.p.c
	if c.raft.term != l.term || c.quorum(l.p.host) == nil {
		return false
	}
	return c.commit(change)
}

// work does what a leader does all the time.
func (l *leadership) work() {
	c := l.p.c
	defer l.p.after(heartbeat, timerLead, l.term)
	now := l.p.clock()
	if c.raft.term == l.term {
		l.changeVoters()
		l.rules.Follow(c.log.forRules(), now)
		l.judge(now)
		l.rules.Follow(c.log.forRules(), now)
		l.staged = c.newest
	}
	for i := range c.hosts {
		if i != l.p.host {
			c.Send(l.p.host, i, "", &beatMsg{l.term, l.staged})
		}
	}
	l.p.onBeat(l.p.host, &beatMsg{l.term, l.staged})
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

// changeVoters replaces a voter that has left for good, one change at a time.
func (l *leadership) changeVoters() {
	c := l.p.c
	defer func() { l.voters = slices.Clone(c.raft.voters) }()
	if c.quorum(l.p.host) == nil {
		return
	}
	voters := c.raft.voters
	gone := slices.IndexFunc(voters, func(v int) bool {
		p := c.hosts[v].process
		_, in := c.log.Named(v)
		return c.hosts[v].left || p != nil && p.leaving && !in
	})
	if gone >= 0 && len(voters) > 1 {
		c.raft.voters = slices.Delete(slices.Clone(voters), gone, gone+1)
		return
	}
	for _, m := range c.log.Members {
		if len(voters) < maxVoters && !slices.Contains(voters, m.Host) && c.hears(l.p.host, m.Host) {
			c.hosts[m.Host].term = max(c.hosts[m.Host].term, l.term)
			c.raft.voters = append(slices.Clone(voters), m.Host)
			return
		}
	}
}

// judge carries out what the leader's rules say.
func (l *leadership) judge(now time.Duration) {
	verdict := l.rules.Judge(l.sight(now), now)
	nodes := make([]kmutex.Node, len(verdict.Suspend))
	for i, s := range verdict.Suspend {
		nodes[i] = s.Node
	}
	l.suspend(nodes)
	l.expire(verdict.Expire)
}

// sight returns what the leader sees for itself.
func (l *leadership) sight(now time.Duration) leader.Sight {
	c := l.p.c
	s := leader.Sight{Boots: make(map[string]string), Gone: make(map[kmutex.Node]time.Duration)}
	for _, m := range c.log.Members {
		p := c.hosts[m.Host].process
		if p != nil && c.hears(l.p.host, m.Host) {
			s.Boots[strconv.Itoa(m.Host)] = strconv.FormatUint(p.boot, 10)
		}
		if p != nil && p.boot == m.Boot || c.IsCut(l.p.host, m.Host) {
			l.seen[m.Host] = now
		}
		if now-l.seen[m.Host] > evidence {
			s.Gone[m.Node] = l.seen[m.Host]
		}
	}
	return s
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
		case slices.ContainsFunc(c.log.lost, func(o lost) bool { return o.host == m.host && o.boot == m.boot }):
			c.Send(l.p.host, from, "", &refuseJoinMsg{m.boot})
		default:
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
		l.changeVoters()
	case *renewMsg:
		if !l.rules.Receive(m.renewal, leader.Report{View: m.view}, l.p.clock()) && c.log.isLost(m.renewal.Node) {
			c.Send(l.p.host, from, "", &refuseMsg{m.renewal})
		}
	case *tellMsg:
		granted, decided := l.grantor.Answer(m.round, strconv.Itoa(m.voter), m.term)
		if decided {
			l.patience = 0
			l.rules.Confirmed()
		}
		for _, r := range granted {
			if member, in := c.log.Member(r.Node); in {
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
	p.leader, p.heard = from, m.term
	p.follow(m.view)
}

// onAsk answers a leader that wants to know whether it still is one.
func (p *process) onAsk(from int, m *askMsg) {
	h := &p.c.hosts[p.host]
	h.term = max(h.term, m.term)
	p.c.Send(p.host, from, "", &tellMsg{round: m.round, voter: p.host, term: h.term})
}
