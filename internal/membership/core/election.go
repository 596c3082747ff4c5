package core

import (
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

// Raft's followers never hear a tick, so raft calls no election by itself and refuses to vote as
// long as it knows a leader. A voter decides here when it has none: when it has heard nothing of it
// for a while, knows that its process is gone, or gets no lease from it. Then raft forgets the
// leader, and a voter asks for votes a little later, unless it has heard of another one. Where a majority
// still knows the leader nothing comes of it: raft asks for pre-votes first.

// election is what a voter knows of its leader, or of the election.
type election struct {
	// heard is when the leader was heard last, and limit how long it may be silent.
	heard, limit time.Duration
	// leader and term that this is about.
	leader ID
	term   uint64
	// asked is when the first renewal was sent to this leader, granted when the newest was
	// sent that it granted; never if there is none.
	asked, granted time.Duration
	// at is when to ask for votes, if there is no leader, and tries how often this was done since there was one.
	at    time.Duration
	tries int
}

const never = time.Duration(-1)

// ledBy takes in who leads, as raft says.
func (c *Core) ledBy(state raft.StateType, lead ID) {
	if c.state == raft.StateLeader && state != raft.StateLeader {
		c.endLead()
	}
	changed := lead != c.lead
	if lead == 0 && c.lead != 0 {
		c.orphan = c.now
	}
	c.state, c.lead = state, lead
	if !changed {
		return
	}
	if term := c.Term(); lead != 0 && (lead != c.election.leader || term != c.election.term) {
		c.election = election{heard: c.now, limit: c.patience(), leader: lead, term: term, asked: never, granted: never}
		c.self.renewNow(c.now)
		c.askAgain()
	} else if lead == 0 {
		c.hesitate()
	}
	if state == raft.StateLeader && c.l == nil {
		c.beginLead()
	}
}

// silentFrom returns when the leader counts as silent if nothing comes of it.
func (c *Core) silentFrom() time.Duration {
	e := &c.election
	from := e.heard + e.limit
	switch {
	case e.granted != never:
		from = min(from, e.granted+c.lease()*3/5+c.trip())
	case e.asked != never:
		from = min(from, e.asked+2*c.lease())
	}
	return from
}

// elect forgets a leader that is gone, and asks for votes.
func (c *Core) elect() {
	if c.state == raft.StateLeader {
		return
	}
	if c.lead != 0 {
		if c.now < c.silentFrom() && !c.gone(c.lead) {
			return
		}
		c.log(slog.LevelDebug, "no leader any more", slog.String("leader", c.nameOf(c.lead)))
		c.hesitate()
		_ = c.node.ForgetLeader() // never fails
		return
	}
	if c.now < c.standsFrom() || !c.votes() || !c.mayStand() || c.diskHangs() {
		return
	}
	c.election.at = c.now + c.nextTry()
	c.election.tries++
	_ = c.node.Campaign() // never fails
}

// standsFrom returns when to ask for votes. One that leaves lets those go first that stay; but it may have the
// only vote.
func (c *Core) standsFrom() time.Duration {
	if c.leaving {
		return max(c.election.at, c.orphan+c.pacing()/2)
	}
	return c.election.at
}

// hesitate leaves others time to be elected, unless that is running already.
func (c *Core) hesitate() {
	if c.election.at <= c.now {
		c.election.at = c.now + c.hesitation()
	}
}

// votes reports that this process votes.
func (c *Core) votes() bool {
	return slices.Contains(c.conf.GetVoters(), uint64(c.id)) || slices.Contains(c.conf.GetVotersOutgoing(), uint64(c.id))
}

// diskHangs reports that a write has been under way for too long to lead.
func (c *Core) diskHangs() bool { return c.writing() > c.hangs() }

// writing returns for how long the oldest write has been under way; 0: none is.
func (c *Core) writing() time.Duration {
	if len(c.writes) == 0 {
		return 0
	}
	return c.now - c.writes[0].at
}

func (e *election) next(c *Core) time.Duration {
	switch {
	case c.state == raft.StateLeader:
		return c.now + lookAgain
	case c.lead != 0:
		return max(c.silentFrom(), c.now+time.Millisecond)
	case !c.votes():
		return c.now + lookAgain
	default:
		return max(c.standsFrom(), c.now+time.Millisecond)
	}
}
