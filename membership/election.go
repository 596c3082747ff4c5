package membership

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/membership/leader"
)

// Raft's followers wait for HeartbeatTimeout and longer before they call an election,
// and that has to be long where round trips are. But a voter knows sooner that its
// leader is gone: from its link and its dials, or because there has been none yet. If
// a majority of the voters say so of themselves, no leader can commit anything, and
// an election deposes nobody who is of use. The one of them with the newest log calls
// it. Raft's timeouts remain for all other cases.

// maxElectionPause is the longest pause between two questions whether the other
// voters have a leader.
const maxElectionPause = 500 * time.Millisecond

// elections calls an election when that is up to this gateway. One that knows its
// leader to be gone asks the others at once. One that knows of no leader waits for a
// while, since somebody may just have been elected.
func (c *Cluster) elections() {
	timer := time.NewTimer(leader.Interval)
	defer timer.Stop()
	pause := leader.Interval
	var since time.Time // it has had no leader
	for {
		select {
		case <-c.closing.Done():
			return
		case <-timer.C:
		}
		_, known := c.Leader()
		switch now := time.Now(); {
		case !c.leaderless():
			pause, since = leader.Interval, time.Time{}
		case since.IsZero() && !known:
			since = now
		case !known && now.Sub(since) < c.config.ElectionTimeout/2:
		case c.shouldCall(c.voters()):
			c.config.Logger.Info("calling an election, since most voters have no leader")
			c.electMyself()
			pause = 2 * c.config.ElectionTimeout // votes may need new connections
		default:
			pause = min(2*pause, maxElectionPause)
		}
		timer.Reset(pause)
	}
}

// leaderless reports that this gateway has no leader: it knows of none, or has
// strong evidence that it is gone.
func (c *Cluster) leaderless() bool {
	if c.raft.State() == raft.Leader || c.leaving.Load() {
		return false
	}
	_, id := c.raft.LeaderWithID()
	return id == "" || c.serverGone(string(id))
}

// serverGone reports strong evidence that a raft server's process is gone.
func (c *Cluster) serverGone(id string) bool {
	v := c.View()
	for node := range c.evidence.gone() {
		if m, in := v.Member(node); in && m.Server == id {
			return true
		}
	}
	return false
}

// shouldCall asks the other voters whether they have a leader, and reports whether
// this gateway should call an election: a majority has none, and of these none has a
// newer log, or the same and a lesser id.
func (c *Cluster) shouldCall(voters []string) bool {
	type voice struct {
		server string
		termAnswer
	}
	self := c.storage.meta.Server
	if !slices.Contains(voters, self) {
		return false
	}
	ctx, cancel := context.WithTimeout(c.closing, probeTimeout(c.lease()))
	defer cancel()
	voices := make(chan voice, len(voters))
	for _, v := range voters {
		c.wg.Go(func() {
			said := voice{server: v}
			switch {
			case v == self:
				said.termAnswer = c.term()
			case !c.serverGone(v):
				if t, err := c.termOf(ctx, v); err == nil {
					said.termAnswer = t
				}
			}
			voices <- said
		})
	}
	var without []voice
	for range voters {
		if v := <-voices; v.Leaderless {
			without = append(without, v)
		}
	}
	if len(without) <= len(voters)/2 {
		return false
	}
	first := slices.MinFunc(without, func(a, b voice) int {
		return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.server, b.server))
	})
	return first.server == self
}
