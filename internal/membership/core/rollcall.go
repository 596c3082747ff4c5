package core

import (
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// An old copy of a data directory is a good one to whoever reads it: the gateway would vote for
// others that have lost as much, and what was agreed on since would be gone. Only the others know
// better. So a process that comes back with a log hears all voters, which say how far they know the
// log to be agreed on, before it votes or stands; for one lease at most. Who lacks something
// of it stands in no election, and votes only for those that have it.
//
// A majority that has what was agreed on is never held up: one of it has all of it, and
// gets the votes.
type rollCall struct {
	calling bool
	until   time.Duration
	floor   Position // agreed on, as somebody said
	from    string   // who said so
	ended   bool     // said that it cannot go on
}

// callRoll ends the roll call when all have answered, or it has lasted long enough.
func (c *Core) callRoll() {
	r := &c.roll
	if !r.calling {
		c.endAlone()
		return
	}
	called := c.conf.GetVoters()
	if len(called) == 1 { // nobody else could know
		called = slices.Concat(called, c.conf.GetLearners())
	}
	missing := slices.ContainsFunc(called, func(id uint64) bool {
		p := c.peers.conns[ID(id)]
		return ID(id) != c.id && (p == nil || p.hello == nil)
	})
	if missing && c.now < r.until {
		return
	}
	r.calling = false
	c.election.at = c.now + c.hesitation()
	if c.behind() {
		c.log(slog.LevelInfo, "catching up: the other gateways have agreed on more while this one was away")
	}
}

// alone is how many leases an only voter that is behind waits for a leader.
const alone = 3

// endAlone ends an only voter that is behind: nobody can bring it up to date. If others
// have been made voters since, one of them leads, and does.
func (c *Core) endAlone() {
	if at, waits := c.endsAlone(); waits && c.now >= at {
		c.roll.ended = true
		c.fail(c.errBehind())
	}
}

// endsAlone returns when this process ends, if nobody leads it until then.
func (c *Core) endsAlone() (at time.Duration, waits bool) {
	only := slices.Equal(c.conf.GetVoters(), []uint64{uint64(c.id)}) && len(c.conf.GetVotersOutgoing()) == 0 && c.lead == 0
	return c.orphan + alone*c.lease(), only && !c.roll.ended && c.behind()
}

// heardHello takes in what a process says of itself.
func (c *Core) heardHello(from ID, h *Hello) {
	if own := c.stored.note.Cluster; own != "" && h.Cluster != "" && h.Cluster != own {
		c.foreign(h)
	}
	if c.l != nil && h.Cluster == c.stored.note.Cluster && h.Last.Index < c.match(from) {
		// It has lost what it had acknowledged. Raft does not send it again within a term.
		c.log(slog.LevelWarn, "a gateway has lost what its disk had taken: leading in another term", slog.String("name", h.Name))
		c.stepDown()
	}
	if h.Cluster != "" && h.Cluster == c.stored.note.Cluster {
		if c.roll.calling && c.roll.floor.before(h.Agreed) {
			c.roll.floor, c.roll.from = h.Agreed, h.Name
		}
		if c.lead == 0 {
			c.believeAgreed(h.Agreed)
		}
	}
	if c.lead == 0 && h.Leader != 0 && h.Leader != c.self.toldOf && c.peers.conns[h.Leader] != nil {
		c.self.toldOf, c.self.joinAt = h.Leader, c.now // it may let this gateway in
	}
}

// believeAgreed takes in that the log is agreed on so far, as another process knows: if this log has the same entry there,
// it has the same before. Nobody might be elected otherwise. A leader that was killed may not know any more that others'
// votes are taken; those know, so they do not stand, and have entries that it lacks, so they do not vote for it. Raft
// hears what is agreed on from leaders only, so this is the heartbeat of a leader that nobody knows.
func (c *Core) believeAgreed(p Position) {
	if p.Index > c.last().Index || p.Index <= c.agreed().Index {
		return
	}
	if term, err := c.stored.log.Term(p.Index); err != nil || term != p.Term {
		return
	}
	_ = c.node.Step(&pb.Message{Type: pb.MsgHeartbeat.Enum(), To: new(uint64(c.id)), Term: new(c.Term()), Commit: new(p.Index)})
	c.ready()
}

// agreed returns how far this process knows the log to be agreed on, also before it was
// started.
func (c *Core) agreed() Position {
	hard, _, err := c.stored.log.InitialState() // never fails
	if err != nil || hard.GetCommit() <= c.applied.Index {
		return c.applied
	}
	term, err := c.stored.log.Term(hard.GetCommit())
	if err != nil {
		return c.applied
	}
	return Position{hard.GetCommit(), term}
}

// last returns where the log ends.
func (c *Core) last() Position {
	index, _ := c.stored.log.LastIndex() // never fails
	term, err := c.stored.log.Term(index)
	if err != nil {
		return Position{}
	}
	return Position{index, term}
}

// behind reports that the log lacks something that is agreed on.
func (c *Core) behind() bool { return c.last().before(c.roll.floor) }

// mayStand reports that this process may lead.
func (c *Core) mayStand() bool { return !c.roll.calling && !c.behind() }

// mayElect reports that a candidate whose log ends there may lead.
func (r *rollCall) mayElect(last Position) bool { return !r.calling && !last.before(r.floor) }

func (r *rollCall) next(c *Core) time.Duration {
	if r.calling {
		return r.until
	}
	if at, waits := c.endsAlone(); waits {
		return at
	}
	return c.now + lookAgain
}
