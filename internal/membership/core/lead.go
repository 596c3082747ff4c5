package core

import (
	"encoding/binary"
	"log/slog"
	"maps"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
)

// leadership is one term in which this process leads.
type leadership struct {
	term uint64
	// grantor and rules are nil until all is applied that the leaders before have
	// committed.
	grantor *lease.Grantor
	rules   *leader.Rules
	viewed  uint64 // number of the view that they have followed

	// began is when the newest round did, and first when the first renewal came that waits
	// for the next.
	began, first time.Duration

	tickAt, judgeAt, lookAt time.Duration
	// entries are the heads of those that are not agreed on yet, and since when.
	entries map[[entryHeader]byte]time.Duration
	// done are the heads of those that are, and since when. Who applies nothing, since its disk hangs, asks
	// for them again and again; two such commands would undo each other for ever.
	done map[[entryHeader]byte]time.Duration
	// out are the gateways that people have taken out, and until when their servers go, too.
	out map[string]time.Duration
	// joining is when a gateway's join was proposed, by name.
	joining map[string]time.Duration
	// want is the first change of the votes that is due, and wanted since when it is.
	want   leader.Step
	wanted time.Duration
	// matches is how much of the log each server had acknowledged at the time matched.
	matches map[ID]uint64
	matched time.Duration
	// changing is when a change of the voters was proposed; 0: none is under way.
	changing time.Duration
	// dead is since when servers are not alive, and away since when they have no member.
	dead, away map[ID]time.Duration
	handing    time.Duration // when the lead was handed over last
}

func (c *Core) beginLead() {
	c.l = &leadership{
		term: c.Term(), joining: make(map[string]time.Duration),
		tickAt: c.now + c.tick(), judgeAt: c.now, lookAt: c.now, dead: make(map[ID]time.Duration), away: make(map[ID]time.Duration),
		began: -time.Hour, entries: make(map[[entryHeader]byte]time.Duration), done: make(map[[entryHeader]byte]time.Duration),
		out: make(map[string]time.Duration), matches: make(map[ID]uint64),
	}
	for _, p := range c.peers.conns { // nobody was asked before
		p.answered = c.now
	}
	c.log(slog.LevelDebug, "elected", slog.Uint64("term", c.l.term))
}

func (c *Core) endLead() {
	if c.l != nil && c.l.grantor != nil {
		c.before = c.l
	}
	c.l = nil
}

// takeLead begins to lead, once all is applied that the leaders before have committed: the
// entry with which raft begins the term is.
func (c *Core) takeLead() {
	l := c.l
	if l.grantor != nil || c.applied.Term != l.term {
		return
	}
	if c.machine.View().Cluster == "" {
		if !c.decreed() {
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
	l.rules.Follow(v, c.now)
}

// decree proposes a command of the leader's own.
func (c *Core) decree(cmd views.Command) {
	data, err := views.Encode(cmd)
	if err != nil {
		c.fail(err)
		return
	}
	c.putEntry(encodeEntry(c.id, c.nextTag(), data))
}

// decreed reports that a command of the leader's own is not agreed on yet. After a while it is proposed again.
func (c *Core) decreed() bool {
	for head, since := range c.l.entries {
		if ID(binary.BigEndian.Uint64(head[:])) == c.id && binary.BigEndian.Uint64(head[8:]) > ownTag && c.now-since <= c.lease()/3 {
			return true
		}
	}
	return false
}

// agreed takes in that an entry is agreed on.
func (l *leadership) agreed(c *Core, head [entryHeader]byte) {
	if since, known := l.entries[head]; known {
		c.out.Committed = append(c.out.Committed, c.now-since)
		delete(l.entries, head)
	}
	maps.DeleteFunc(l.done, func(_ [entryHeader]byte, at time.Duration) bool { return c.now-at > doneFor })
	l.done[head] = c.now
}

// doneFor is how long a leader remembers what was agreed on.
const doneFor = time.Minute

// forgetDone forgets it of a process that may be another one, which counts its commands anew.
func (l *leadership) forgetDone(id ID) {
	maps.DeleteFunc(l.done, func(head [entryHeader]byte, _ time.Duration) bool { return ID(binary.BigEndian.Uint64(head[:])) == id })
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

// Waits reports, at a leader, that a gateway has to stay out for a while, since its links or its
// reports failed again and again.
func (c *Core) Waits(name string) bool {
	return c.l != nil && c.l.rules != nil && c.l.rules.Waits(name, c.now)
}
