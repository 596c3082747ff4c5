package membership

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
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
// first. Raft's timeouts remain for all other cases. If raft's own timeout was sooner
// somewhere, it asks for pre-votes, gets none from those that know a leader, and takes no
// call until it asks again: nobody waits for that one.
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

// elections calls elections, and lets a gateway that comes back take part in them.
type elections struct {
	*raftNode
	peers   *peerClient
	prober  *prober
	leaders *leaderWatch
}

// run calls an election when that is up to this gateway.
func (e *elections) run() {
	var v leaderlessTime
	for {
		changed := e.Changed()
		again := e.campaign(&v, time.Now())
		if v != (leaderlessTime{}) {
			changed = nil // the next call has its time
		}
		if !e.pause(again, changed, nil) {
			return
		}
	}
}

// campaign calls an election if this gateway votes, has no leader, and it is its turn.
// It returns when to call it again. A voter that knows its leader to be unreachable asks
// the others at once. One that knows of no leader waits a little, since somebody may
// just have been elected; one whose leader is silent waits for one more heartbeat, since
// the machine itself may have stood.
func (e *elections) campaign(v *leaderlessTime, now time.Time) time.Duration {
	if !slices.Contains(e.voters(), e.storage.meta.Server) {
		return maxElectionPause
	}
	if !e.leaders.leaderless() {
		*v = leaderlessTime{}
		return min(e.leaders.silentIn(), lookAgain) // what else ends it is a change
	}
	if v.since.IsZero() {
		v.since = now
	}
	if left := v.since.Add(e.patience()).Sub(now); left > 0 {
		return min(left, leader.Interval)
	}
	if !e.roll.called() || e.roll.behind() != nil {
		return leader.Interval
	}
	term := e.raft.CurrentTerm()
	before, most := e.askVoters(e.voters())
	if !most {
		v.agreed = time.Time{}
		v.pause = min(max(2*v.pause, leader.Interval), maxElectionPause)
		return v.pause
	}
	if v.agreed.IsZero() {
		v.agreed = now
	}
	if now.Sub(v.agreed) < time.Duration(before)*3*e.votesTime() {
		return leader.Interval
	}
	if !e.leaders.leaderless() || e.raft.CurrentTerm() != term || e.raft.State() == raft.Candidate {
		return leader.Interval // somebody was elected or is about to be, or raft takes no call
	}
	e.config.Logger.Info("calling an election: most voters have no leader")
	e.electMyself()
	return 5 * e.votesTime()
}

// patience is how long a voter without a leader waits before it asks the others.
func (e *elections) patience() time.Duration {
	switch id := e.leaderID(); {
	case id == "":
		return e.votesTime() / 2
	case e.prober.serverUnreachable(id):
		return 0
	default:
		return e.raftTimeout() / 5 // raft's longest pause between two heartbeats
	}
}

// askVoters asks the other voters whether they have a leader. Most: a majority has none
// and can be dialed; before is how many of these can call an election and have a newer log,
// or the same and a lesser id. Those that take much longer than the majority do not count.
func (e *elections) askVoters(voters []string) (before int, most bool) {
	self := e.storage.meta.Server
	if !slices.Contains(voters, self) {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(e.closing, e.callTimeout())
	defer cancel()
	mine := e.leaders.term()
	answers := make(chan voterAnswer, len(voters))
	for _, v := range voters {
		if v != self && !e.prober.serverUnreachable(v) {
			e.wg.Go(func() { answers <- e.askLeaderless(ctx, v) })
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
			if said.callsBefore(voterAnswer{self, mine}) {
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

// callsBefore reports that a calls an election if both can.
func (a voterAnswer) callsBefore(b voterAnswer) bool {
	if a.Waits && a.Term == b.Term {
		return false
	}
	return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.server, b.server)) < 0
}

// askLeaderless asks a voter whether it has a leader, and dials it: only one that can be
// dialed counts, and to which long packets pass, as entries of the log are.
func (e *elections) askLeaderless(ctx context.Context, voter string) voterAnswer {
	addr, known := e.addresses.of(raft.ServerID(voter))
	if !known {
		return voterAnswer{}
	}
	dialed := make(chan bool, 1)
	e.wg.Go(func() { dialed <- e.peers.passes(ctx, addr) })
	said, err := e.leaders.termOf(ctx, voter)
	if !<-dialed || err != nil {
		return voterAnswer{}
	}
	return voterAnswer{voter, said}
}

// comeBack lets a gateway that has been a raft server before take part again.
func (e *elections) comeBack() {
	if e.roll.called() {
		return // it has no log yet, or none that lasts
	}
	e.callRoll()
	e.tuneRaft()
	if e.roll.behind() == nil && e.soleVoter() {
		e.electMyself()
	}
}

// callRoll asks everybody who may know more, once, for one lease at most.
func (e *elections) callRoll() {
	defer close(e.roll.over)
	ctx, cancel := context.WithTimeout(e.closing, e.lease())
	defer cancel()
	var asked sync.WaitGroup
	for name, id := range e.rollCalled() {
		asked.Go(func() {
			if !e.rollOf(ctx, name, id) {
				e.roll.mu.Lock()
				e.roll.missed = append(e.roll.missed, name)
				e.roll.mu.Unlock()
			}
		})
	}
	asked.Wait()
	if len(e.roll.missed) > 0 && e.closing.Err() == nil {
		e.config.Logger.Info("other gateways did not answer: going on without them", slog.Any("missing", e.roll.missed))
	}
	err := e.roll.behind()
	if err == nil {
		return
	}
	// After a crash that is as it should be. The reason matters only where it stays so.
	e.config.Logger.Info("catching up: the other gateways have agreed on more while this one was away")
	e.config.Logger.Debug("data_dir is older than what the other gateways have agreed on", slog.String("data_dir", e.config.DataDir), slog.Any("reason", err))
	if e.soleVoter() {
		e.fail(err) // nobody else can lead
	}
}

// rollCalled returns whom to ask, by name: the other voters, or, if this gateway is the only
// one, all others.
func (e *elections) rollCalled() map[string]raft.ServerID {
	sole := e.soleVoter()
	called := make(map[string]raft.ServerID)
	for _, s := range e.servers() {
		if name := nameOf(s.ID); name != e.config.Name && (sole || s.Suffrage == raft.Voter) {
			called[name] = s.ID
		}
	}
	return called
}

// rollOf asks a gateway until it answers, and reports whether it has.
func (e *elections) rollOf(ctx context.Context, name string, server raft.ServerID) bool {
	for {
		if to, known := e.addresses.to(string(server)); known {
			if id, err := e.peers.identify(ctx, to); err == nil {
				switch err := e.plausible(id.Agreed.Term, 0); {
				case id.Cluster != e.storage.clusterID():
				case err != nil:
					e.config.Logger.Warn("what a gateway says was agreed on is not believed", slog.String("name", name), slog.Any("error", err))
				default:
					e.roll.heard(name, id.Agreed)
				}
				return true
			}
		}
		if e.sleep(ctx, soon) != nil {
			return false
		}
	}
}
