package membership

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/leader"
)

// Raft's followers wait for HeartbeatTimeout and longer before they call an election,
// and that has to be long where round trips are. But a voter knows sooner that its
// leader is gone: from its link and its dials, or because there has been none yet. If
// a majority of the voters say so of themselves, and can be dialed now, no leader can
// commit anything, and an election deposes nobody who is of use. The one of them with
// the newest log calls it; the others wait for it, each for longer than the one before
// it and for as long as votes over new connections take, since a second call undoes the
// first. Raft's timeouts remain for all other cases.
//
// A voter that cannot open connections must not call: its term would rise with each
// call, and who has a later term takes nothing from the leader whom the others elect.

// maxElectionPause is the longest pause between two questions whether the other
// voters have a leader.
const maxElectionPause = 500 * time.Millisecond

// leaderlessTime is what a voter without a leader remembers from one call of campaign
// to the next.
type leaderlessTime struct {
	// since is when this voter lost its leader, and agreed since when a majority of
	// the voters have none.
	since, agreed time.Time
	pause         time.Duration
}

// elections calls an election when that is up to this gateway.
func (c *Cluster) elections() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var v leaderlessTime
	for {
		changed := c.Changed()
		timer.Reset(c.campaign(&v, time.Now()))
		if v != (leaderlessTime{}) {
			changed = nil // the next call has its time
		}
		select {
		case <-c.closing.Done():
			return
		case <-changed:
		case <-timer.C:
		}
	}
}

// watchLeader tells everybody who waits for a change when raft has another leader, or
// none.
func (c *Cluster) watchLeader() {
	seen := make(chan raft.Observation, 1)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, leader := o.Data.(raft.LeaderObservation)
		return leader
	})
	c.raft.RegisterObserver(observer)
	defer c.raft.DeregisterObserver(observer)
	for {
		select {
		case <-c.closing.Done():
			return
		case <-seen:
			c.machine.touch()
		}
	}
}

// campaign calls an election if this gateway votes, has no leader, and it is its turn.
// It returns when to call it again. A voter that knows its leader to be unreachable asks
// the others at once. One that knows of no leader waits a little, since somebody may
// just have been elected.
func (c *Cluster) campaign(v *leaderlessTime, now time.Time) time.Duration {
	if !slices.Contains(c.voters(), c.storage.meta.Server) {
		return maxElectionPause
	}
	if !c.leaderless() {
		*v = leaderlessTime{}
		return leader.Interval
	}
	if v.since.IsZero() {
		v.since = now
	}
	if _, known := c.Leader(); !known && now.Sub(v.since) < c.votesTime()/2 {
		return leader.Interval
	}
	if !c.called() || c.behind() != nil {
		return leader.Interval
	}
	term := c.raft.CurrentTerm()
	before, most := c.askVoters(c.voters())
	if !most {
		v.agreed = time.Time{}
		v.pause = min(max(2*v.pause, leader.Interval), maxElectionPause)
		return v.pause
	}
	if v.agreed.IsZero() {
		v.agreed = now
	}
	if now.Sub(v.agreed) < time.Duration(before)*3*c.votesTime() {
		return leader.Interval
	}
	if !c.leaderless() || c.raft.CurrentTerm() != term {
		return leader.Interval // somebody was elected, or is about to be
	}
	c.config.Logger.Info("calling an election: most voters have no leader")
	c.electMyself()
	return 5 * c.votesTime()
}

// leaderIsSilent reports that a leader which has renewed this gateway's lease in this term does
// not do so any more: it is slow, or cut off from most voters. One that has just been
// elected, be it again, has two leases for its first renewal: leases are over then.
func (c *Cluster) leaderIsSilent(leads string) bool {
	term, lease := c.raft.CurrentTerm(), c.lease()
	if last := c.renewed.Load(); last.of(leads, term) {
		return time.Since(last.sent) > lease*3/5
	}
	asked := c.asked.Load()
	return asked.of(leads, term) && time.Since(asked.sent) > 2*lease
}

// leaderless reports that this gateway has no leader: it knows of none, or has
// strong evidence that it is gone.
func (c *Cluster) leaderless() bool {
	if c.raft.State() == raft.Leader || c.leaving.Load() {
		return false
	}
	_, id := c.raft.LeaderWithID()
	return id == "" || c.serverUnreachable(string(id)) || c.leaderIsSilent(string(id))
}

// serverUnreachable reports strong evidence that a raft server's process is gone.
func (c *Cluster) serverUnreachable(id string) bool {
	v := c.View()
	for node := range c.prober.unreachable() {
		if m, in := v.Member(node); in && m.Server == id {
			return true
		}
	}
	return false
}

// askVoters asks the other voters whether they have a leader. Most: a majority has none
// and can be dialed; before is how many of these have a newer log, or the same and a
// lesser id. Those that take much longer than the majority do not count.
func (c *Cluster) askVoters(voters []string) (before int, most bool) {
	self := c.storage.meta.Server
	if !slices.Contains(voters, self) {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(c.closing, c.config.CallTimeout)
	defer cancel()
	mine := c.term()
	answers := make(chan voterAnswer, len(voters))
	for _, v := range voters {
		if v != self && !c.serverUnreachable(v) {
			c.wg.Go(func() { answers <- c.askLeaderless(ctx, v) })
		} else {
			answers <- voterAnswer{}
		}
	}
	without, last := 1, ctx.Done()
	for range voters {
		select {
		case <-last:
			return before, without > len(voters)/2
		case said := <-answers:
			if !said.Leaderless {
				continue
			}
			if cmp.Or(cmp.Compare(mine.Last, said.Last), cmp.Compare(said.server, self)) < 0 {
				before++
			}
			if without++; without == len(voters)/2+1 {
				soon, stop := context.WithTimeout(ctx, leader.Interval)
				defer stop()
				last = soon.Done()
			}
		}
	}
	return before, without > len(voters)/2
}

// voterAnswer is what a voter said that was asked whether it has a leader.
type voterAnswer struct {
	server string
	termAnswer
}

// askLeaderless asks a voter whether it has a leader, and dials it: only one that can be
// dialed counts.
func (c *Cluster) askLeaderless(ctx context.Context, voter string) voterAnswer {
	addr, known := c.addressOf(raft.ServerID(voter))
	if !known {
		return voterAnswer{}
	}
	dialed := make(chan bool, 1)
	c.wg.Go(func() { dialed <- c.reaches(ctx, addr) })
	said, err := c.termOf(ctx, voter)
	if !<-dialed || err != nil {
		return voterAnswer{}
	}
	return voterAnswer{voter, said}
}
