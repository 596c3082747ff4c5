package core

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// leadership is one term in which this process leads.
type leadership struct {
	term uint64
	// grantor and rules are nil until all is applied that the leaders before have
	// committed.
	grantor *lease.Grantor
	rules   *leader.Rules
	viewed  uint64 // number of the view that they have followed

	// waiting are the renewals that wait for a round, by process.
	waiting map[ID]lease.Renewal
	// began is when the newest round did, and first when the first renewal came that waits
	// for the next.
	began, first time.Duration

	tickAt, judgeAt, lookAt time.Duration
	// proposed are the leader's own commands that are not agreed on yet, and since when.
	proposed map[uint64]time.Duration
	// entries are the heads of those that are not agreed on yet.
	entries map[[entryHeader]byte]bool
	// joining is when a gateway's join was proposed, by name.
	joining map[string]time.Duration
	// changing is when a change of the voters was proposed; 0: none is under way.
	changing time.Duration
	// dead is since when servers are not alive, and away since when they have no member.
	dead, away map[ID]time.Duration
	handing    time.Duration // when the lead was handed over last
	// knocked is when members said last that a gateway asks them to be let in.
	knocked map[string]time.Duration
}

func (c *Core) beginLead() {
	c.l = &leadership{
		term: c.Term(), waiting: make(map[ID]lease.Renewal), proposed: make(map[uint64]time.Duration), joining: make(map[string]time.Duration),
		tickAt: c.now + c.tick(), judgeAt: c.now, lookAt: c.now, dead: make(map[ID]time.Duration), away: make(map[ID]time.Duration),
		began: -time.Hour, entries: make(map[[entryHeader]byte]bool), knocked: make(map[string]time.Duration),
	}
	c.log(slog.LevelDebug, "elected", slog.Uint64("term", c.l.term))
}

func (c *Core) endLead() {
	if c.l != nil && c.l.grantor != nil {
		c.before = c.l
	}
	c.l = nil
}

// stepDown ends this process's lead. Others may be elected; if not, it is, in a later term. Raft has no
// such call, but whoever hears of a later term leads no more.
func (c *Core) stepDown() {
	_ = c.node.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(c.id)), To: new(uint64(c.id)), Term: new(c.Term() + 1)})
	c.ready()
}

// match returns how much of the log a server has acknowledged to this leader.
func (c *Core) match(id ID) (index uint64) {
	c.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
		if other == uint64(id) {
			index = p.Match
		}
	})
	return index
}

// takeLead begins to lead, once all is applied that the leaders before have committed: the
// entry with which raft begins the term is.
func (c *Core) takeLead() {
	l := c.l
	if l.grantor != nil || c.applied.Term != l.term {
		return
	}
	if c.machine.View().Cluster == "" {
		if len(l.proposed) == 0 {
			c.decree(views.Command{Found: &views.Found{
				Cluster: c.stored.note.Cluster, Lease: c.cfg.Lease, At: c.cfg.Wall + c.now.Milliseconds(),
			}})
		}
		return
	}
	var rules *leader.Rules
	if c.before != nil {
		rules = c.before.rules
		l.grantor = c.before.grantor.Again(l.term)
	}
	if l.grantor == nil {
		l.grantor = lease.NewGrantor(c.terms(), l.term, c.now)
	}
	l.rules = leader.New(c.terms(), l.grantor, rules, c.now)
	l.viewed = 0
	l.follow(c)
	c.self.renewNow(c.now)
	c.log(slog.LevelInfo, "leading", slog.Uint64("term", l.term))
}

// follow has the rules see the newest view.
func (l *leadership) follow(c *Core) {
	v := c.machine.View()
	l.lookAt = c.now
	if l.rules == nil || l.viewed == v.Number && l.viewed != 0 {
		return
	}
	l.viewed = v.Number
	l.rules.Follow(v.ForRules(), c.now)
}

// decree proposes a command of the leader's own.
func (c *Core) decree(cmd views.Command) {
	data, err := views.Encode(cmd)
	if err != nil {
		c.fail(err)
		return
	}
	tag := c.nextTag()
	if c.node.Propose(encodeEntry(c.id, tag, data)) == nil {
		c.l.proposed[tag] = c.now
	}
}

func (c *Core) nextTag() uint64 { c.tags++; return ownTag + c.tags }

// work does what a leader does now and then.
func (c *Core) work() {
	l := c.l
	if l == nil {
		return
	}
	if c.diskHangs() {
		c.handOver() // it sends nothing else: the others elect another leader then
		return
	}
	if c.now >= l.tickAt {
		// After a pause there is one tick, not all that were missed.
		l.tickAt = max(l.tickAt+c.tick(), c.now+c.tick()/2)
		c.node.Tick()
		c.ready()
		if c.l == nil {
			return
		}
	}
	c.takeLead()
	if l.grantor == nil {
		return
	}
	c.beginRound()
	if c.now >= l.judgeAt {
		l.judgeAt = c.now + leader.Interval
		c.judge()
	}
	if c.now >= l.lookAt {
		l.lookAt = c.now + 2*leader.Interval
		c.reconcileVoters()
	}
}

func (c *Core) nextWork() time.Duration {
	l := c.l
	if l == nil {
		return c.now + lookAgain
	}
	if c.diskHangs() {
		return c.now + c.tick()
	}
	at := min(max(l.tickAt, c.now+time.Millisecond), max(l.judgeAt, c.now+time.Millisecond), max(l.lookAt, c.now+time.Millisecond))
	if l.grantor != nil && l.grantor.Waiting() {
		at = min(at, max(l.began+c.roundGap(), l.first+c.roundDelay(), c.now+time.Microsecond))
	}
	return at
}

// receiveRenewal takes in a member's renewal.
func (c *Core) receiveRenewal(from ID, r *Renew) {
	l := c.l
	if l == nil || l.grantor == nil {
		return
	}
	v := c.machine.View()
	if m, in := v.Member(r.Node); in && m.Server != serverText(from) {
		return
	} else if !in {
		if _, lost := v.LostMember(r.Node); lost || uint64(r.Node) <= c.applied.Index {
			c.answer(from, Grant{Renewal: lostNode(r.Node)})
		}
		return
	}
	if !l.grantor.Waiting() {
		l.first = c.now
	}
	if l.rules.Receive(r.Renewal, r.Report, c.now) {
		l.waiting[from] = r.Renewal
	}
}

func (c *Core) answer(to ID, g Grant) {
	if to == c.id {
		c.granted(&g)
		return
	}
	c.send(to, Message{Grant: &g})
}

// beginRound asks the voters whether this process still leads, for all renewals that have come
// so far. Raft asks with heartbeats, which are sent again with every tick.
func (c *Core) beginRound() {
	l := c.l
	if !l.grantor.Waiting() || c.now < l.began+c.roundGap() || c.now < l.first+c.roundDelay() {
		return
	}
	l.began = c.now
	c.node.ReadIndex(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))
}

// confirmed takes in that a majority was in this process's term when a round asked.
func (c *Core) confirmed(round []byte) {
	l := c.l
	if l == nil || l.grantor == nil || len(round) != 8 {
		return
	}
	granted := l.grantor.Confirm(binary.BigEndian.Uint64(round))
	if len(granted) == 0 {
		return
	}
	l.rules.Confirmed()
	of := make(map[kmutex.Node]lease.Renewal, len(granted))
	for _, r := range granted {
		of[r.Node] = r
	}
	applied := c.machine.Newest()
	for _, to := range sortedKeys(l.waiting) {
		// A newer one may wait for the next round.
		if r, ok := of[l.waiting[to].Node]; ok {
			if l.waiting[to] == r {
				delete(l.waiting, to)
			}
			c.answer(to, Grant{Renewal: r, Applied: applied})
		}
	}
}

// observe returns what this process sees for itself.
func (c *Core) observe() leader.Observation {
	s := leader.Observation{Self: c.cfg.Name, Boots: map[string]string{c.cfg.Name: c.self.boot}, Unreachable: make(map[kmutex.Node]time.Duration), Outsiders: c.outsiders()}
	for _, g := range c.peers.gossip {
		if g.Alive && g.Name != c.cfg.Name {
			s.Boots[g.Name] = g.Boot
		}
	}
	for _, m := range c.machine.View().Members {
		if id := serverID(m.Server); c.gone(id) {
			s.Unreachable[m.Node] = c.peers.down[m.Node]
			if p := c.peers.probes[m.Name]; p != nil {
				s.Unreachable[m.Node] = p.since
			}
		}
	}
	return s
}

// knocked notes, as the leader, that a gateway would come in if another one led.
func (c *Core) knocked(name string) {
	if _, seen := c.peers.seen(name); c.l != nil && seen {
		c.l.knocked[name] = c.now
	}
}

// outsiders returns the gateways that reach a member and not this leader.
func (c *Core) outsiders() []string {
	var names []string
	for name, at := range c.l.knocked {
		_, in := c.machine.View().Named(name)
		_, reached := c.peers.named(name)
		switch {
		case in || reached || c.now-at > c.lease():
			delete(c.l.knocked, name)
		case c.now-at <= c.lease()/2:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Bounds on one command: how many nodes it names, and how many with a reason for each.
const (
	maxNodes    = 512
	maxSuspects = 56
)

// judge carries out what the rules say, unless the last of it is not agreed on yet.
func (c *Core) judge() {
	l := c.l
	for tag, since := range l.proposed {
		if c.now-since > c.lease()/3 {
			delete(l.proposed, tag)
		}
	}
	l.follow(c)
	if c.leaving {
		return
	}
	verdict := l.rules.Judge(c.observe(), c.now)
	if len(l.proposed) == 0 {
		for batch := range slices.Chunk(verdict.Suspend, maxSuspects) {
			var suspend views.Suspend
			for _, s := range batch {
				suspend.Nodes = append(suspend.Nodes, s.Node)
				suspend.Reasons = append(suspend.Reasons, views.CutReason(s.Text(c.cfg.Name)))
			}
			c.decree(views.Command{Suspend: &suspend})
		}
		for nodes := range slices.Chunk(verdict.Expire, maxNodes) {
			c.decree(views.Command{Expire: &views.Expire{Nodes: nodes}})
		}
		for _, back := range verdict.Return {
			for nodes := range slices.Chunk(back.Nodes, maxNodes) {
				c.decree(views.Command{Return: &views.Return{Pool: back.Pool, Nodes: nodes}})
			}
		}
	}
	if verdict.HandOver {
		l.rules.HandedOver(c.now)
		c.log(slog.LevelWarn, "handing leadership over: gateways that are alive cannot reach this one, or the voters cannot")
		c.handOver()
	}
}

// handOver passes the lead on to a voter that is there, a member and one that serves
// if there is one.
func (c *Core) handOver() {
	if c.state != raft.StateLeader || c.l.handing != 0 && c.now < c.l.handing+c.lease()/3 {
		return
	}
	c.l.handing = c.now
	best, most := ID(0), 0
	for _, v := range c.conf.GetVoters() {
		id := ID(v)
		if id == c.id || c.peers.conns[id] == nil {
			continue
		}
		rank := 1 + c.rand.IntN(64)
		// One that has to stay out may be whom the others reach.
		if m, in := c.member(id); in && (c.leaving || c.rand.IntN(2) == 0) {
			rank += 128
			if !m.Witness {
				rank += 64
			}
		}
		if rank > most {
			best, most = id, rank
		}
	}
	if best != 0 {
		c.node.TransferLeader(uint64(best))
		return
	}
	c.l.handing = 0
	c.giveVote()
}

// giveVote gives a member a vote that is there, so that it can lead.
func (c *Core) giveVote() {
	if c.l.changing != 0 && c.now-c.l.changing < c.lease()/3 {
		return
	}
	for _, id := range c.conf.GetLearners() {
		if m, in := c.member(ID(id)); in && c.peers.conns[ID(id)] != nil && !m.Witness && c.caughtUp(ID(id)) {
			c.changeConf(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddNode.Enum(), NodeId: new(id)}}})
			return
		}
	}
}

// receiveJoin judges, as the leader, a gateway that wants to come in.
func (c *Core) receiveJoin(from ID, j *Join) {
	l := c.l
	if l == nil || l.grantor == nil {
		if from != c.id {
			c.sayHello(from) // it has the leader's name
			if leads := c.peers.conns[c.lead]; leads != nil && !slices.Contains(j.Reaches, leads.name) {
				c.send(c.lead, Message{Knocks: j.Join.Name})
			}
		}
		return
	}
	join := j.Join
	if c.leaving || join.Check() != nil || serverID(join.Server) != from || from != c.id && c.peers.conns[from].name != join.Name {
		return
	}
	v := c.machine.View()
	if v.LostBoot(join.Name, join.Boot) {
		c.answer(from, Grant{Lost: join.Boot})
		return
	}
	m, in := v.Named(join.Name)
	there := c.inConf()[from]
	if in && m.Boot == join.Boot && m.PeerAddr == join.PeerAddr && m.Server == join.Server && there {
		return // the view is on its way
	}
	if at, proposed := l.joining[join.Name]; proposed && c.now-at < c.lease()/3 {
		return
	}
	if !(in && m.Boot == join.Boot) && !c.mayJoin(&join, j.Reaches) {
		return
	}
	cmd := views.Command{Join: &join}
	if there {
		l.joining[join.Name] = c.now
		c.decree(cmd)
		return
	}
	if l.changing != 0 && c.now-l.changing < c.lease()/3 {
		return // it asks again
	}
	l.joining[join.Name] = c.now
	c.addLearner(from, join)
}

func (c *Core) changeConf(cc *pb.ConfChangeV2) {
	if c.node.ProposeConfChange(cc) == nil {
		c.l.changing = max(c.now, 1)
	}
}

// mayJoin reports that a gateway may come in, as the rules see it. If not, what its incarnation
// before had comes back all the same, if it says that nothing of it is in flight.
func (c *Core) mayJoin(join *views.Join, reaches []string) bool {
	l := c.l
	if !l.rules.Waits(join.Name, c.now) {
		var unreached []string
		for _, m := range c.machine.View().Members {
			// A witness needs no links but to the leader.
			if m.Name != join.Name && !slices.Contains(reaches, m.Name) && (!join.Witness || m.Name == c.cfg.Name) && !(m.Name == c.cfg.Name) {
				unreached = append(unreached, m.Name)
			}
		}
		if l.rules.LetIn(join.Name, unreached, c.observe(), c.now) == "" {
			return true
		}
	}
	lost, known := c.machine.View().LostMember(join.Voided)
	if known && lost.Leased && lost.Name == join.Name && len(l.proposed) == 0 {
		c.decree(views.Command{Expire: &views.Expire{Nodes: []kmutex.Node{join.Voided}}})
	}
	return false
}
