package membership

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/views"
)

// entryOf is a command as a leader of that term sends it.
func entryOf(t *testing.T, index, term uint64, c views.Command) *raft.Log {
	t.Helper()
	data, err := views.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: data}
}

// TestOnlyTheElectedLead: a voter that speaks raft, and was not elected, changes nothing:
// not what one gateway believes, not the term, not the leader.
func TestOnlyTheElectedLead(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		three := n.leased(t, 3*time.Second, nil)
		for _, g := range three {
			g.ready()
		}
		define(t, three[0], "p", 2)
		leader := leaderOf(t, three)
		until(t, "two more voters", func() bool { names, _ := leader.Voting(); return len(names) == 3 })
		agree(t, three, "a", "b", "c")
		term := leader.raft.CurrentTerm()
		evil := n.attacker(t, leader.storage.clusterID())
		for _, as := range three {
			if as == leader {
				continue
			}
			header := asServer(as.stats().Server, as.peerAddr)
			for _, to := range three {
				if to == as {
					continue
				}
				id, addr := raft.ServerID(to.stats().Server), address(to.peerAddr, to.stats().Server)
				for _, now := range []uint64{term, term + 1, term + 9} {
					last := to.raft.LastIndex()
					var before raft.Log
					if err := to.storage.logs.GetLog(last, &before); err != nil {
						t.Fatal(err)
					}
					entries := &raft.AppendEntriesRequest{
						RPCHeader: header, Term: now, PrevLogEntry: last, PrevLogTerm: before.Term, LeaderCommitIndex: last + 1,
						Entries: []*raft.Log{entryOf(t, last+1, now, setK("p", 50))},
					}
					if err := evil.AppendEntries(id, addr, entries, new(raft.AppendEntriesResponse)); err == nil {
						t.Errorf("entries of term %d, the leader's is %d, as %s to %s are answered", now, term, as.name, to.name)
					}
					forged := views.State{Number: 99, Pools: []Pool{{Name: "p", K: 50, Binding: "late", Reclaim: "lease"}}}
					data, err := forged.Encode()
					if err != nil {
						t.Fatal(err)
					}
					install := &raft.InstallSnapshotRequest{
						RPCHeader: header, Term: now, SnapshotVersion: 1, LastLogIndex: last + 1, LastLogTerm: term, Size: int64(len(data)),
						Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: to.servers()}), ConfigurationIndex: 1,
					}
					if err := evil.InstallSnapshot(id, addr, install, new(raft.InstallSnapshotResponse), bytes.NewReader(data)); err == nil {
						t.Errorf("a snapshot of term %d as %s to %s is answered", now, as.name, to.name)
					}
				}
				vote := &raft.RequestVoteRequest{RPCHeader: header, Term: term + 1, LastLogIndex: 1 << 40, LastLogTerm: term, LeadershipTransfer: true}
				if err := evil.RequestVote(id, addr, vote, new(raft.RequestVoteResponse)); err == nil {
					t.Errorf("%s, which was not told to take over, is given a vote by %s", as.name, to.name)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
		for _, g := range three {
			if p, _ := g.View().Pool("p"); p.K != 2 || g.raft.CurrentTerm() != term {
				t.Errorf("%s has k %d in term %d", g.name, p.K, g.raft.CurrentTerm())
			}
		}
		if now := leaderOf(t, three); now != leader {
			t.Errorf("%s leads", now.name)
		}
		if err := three[1].SetK(t.Context(), "p", 3, 2, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestLeadersAreBelieved: whoever is elected is believed: after a loss, after a hand-over,
// and by a gateway that could not vote.
func TestLeadersAreBelieved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		three := n.leased(t, 0, nil)
		for _, g := range three {
			g.ready()
		}
		define(t, three[0], "p", 2)
		leader := leaderOf(t, three)
		until(t, "three voters", func() bool { names, _ := leader.Voting(); return len(names) == 3 })
		began := time.Now()
		leader.leave()
		var left []*gateway
		for _, g := range three {
			if g != leader {
				left = append(left, g)
			}
		}
		next := leaderOf(t, left)
		if err := left[0].SetK(t.Context(), "p", 3, 2, 0); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s leads and has set k %v after the last one left", next.name, time.Since(began).Round(time.Millisecond))
	})
}

// TestStatesAreCompared: a gateway whose state differs from what the others agreed on
// ends within a lease, whether it leads or not; the others go on.
func TestStatesAreCompared(t *testing.T) {
	const lease = 2 * time.Second
	for _, c := range []struct {
		name  string
		leads bool
		more  bool // the log goes on
	}{{"a follower", false, false}, {"a follower, and the log goes on", false, true}, {"the leader, and the log goes on", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				three := n.leased(t, lease, nil)
				for _, g := range three {
					g.ready()
				}
				define(t, three[0], "p", 2)
				leader := leaderOf(t, three)
				until(t, "three voters", func() bool { names, _ := leader.Voting(); return len(names) == 3 })
				agree(t, three, "a", "b", "c")
				victim := leader
				if !c.leads {
					victim = three[(indexOf(three, leader)+1)%3]
				}
				planted := victim.raft.LastIndex() + 1
				if c.more {
					planted = victim.machine.newestCheckpoint().Index + 1
				}
				victim.machine.Apply(entryOf(t, planted, 1, setK("p", 50)))
				if c.more {
					for k := 3; k < 6; k++ {
						if err := leader.proposer.applyHere(setK("p", k)); err != nil {
							t.Fatal(err)
						}
					}
				}
				began := time.Now()
				for _, g := range three {
					if g == victim {
						continue
					}
					select {
					case err := <-g.Failed():
						t.Fatalf("%s: %v", g.name, err)
					case err := <-victim.Failed():
						if !errors.Is(err, errDiffers) || !strings.Contains(err.Error(), "move the data_dir") {
							t.Errorf("%v", err)
						}
						t.Logf("%s ends after %v: %v", victim.name, time.Since(began).Round(time.Millisecond), err)
						return
					case <-time.After(lease):
						t.Fatal("nobody notices")
					}
				}
			})
		})
	}
}

func indexOf(gateways []*gateway, g *gateway) int {
	for i := range gateways {
		if gateways[i] == g {
			return i
		}
	}
	return -1
}

// TestRestartedVoterIsNotFooled: a voter that has just restarted hears from no leader. It
// does not believe a voter that says it leads, since nobody has elected that one.
func TestRestartedVoterIsNotFooled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		root := t.TempDir()
		three := n.leased(t, 3*time.Second, func(name string) string { return filepath.Join(root, name) })
		define(t, three[0], "p", 2)
		settle(t, three)
		leader := leaderOf(t, three)
		until(t, "three voters", func() bool { names, _ := leader.Voting(); return len(names) == 3 })
		agree(t, three, "a", "b", "c")
		rest := without(three, leader)
		victim, liar := rest[0], rest[1]
		evil := n.attacker(t, leader.storage.clusterID())
		term, last := leader.raft.CurrentTerm(), victim.raft.LastIndex()
		var before raft.Log
		if err := victim.storage.logs.GetLog(last, &before); err != nil {
			t.Fatal(err)
		}
		server := victim.stats().Server
		victim.kill()
		conf := victim.config
		conf.join = []string{leader.gossip, liar.gossip}
		back := n.start(t, victim.name, conf)
		for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(time.Millisecond) {
			m := &raft.AppendEntriesRequest{
				RPCHeader: asServer(liar.stats().Server, liar.peerAddr), Term: term + 1,
				PrevLogEntry: last, PrevLogTerm: before.Term, LeaderCommitIndex: last + 1,
				Entries: []*raft.Log{entryOf(t, last+1, term+1, setK("p", 50))},
			}
			var r raft.AppendEntriesResponse
			if evil.AppendEntries(raft.ServerID(server), address(back.peerAddr, server), m, &r) == nil && r.Success {
				t.Fatalf("%s takes entries from %s, which nobody has voted for", back.name, liar.name)
			}
		}
	})
}

func TestNotElected(t *testing.T) {
	no, a, b := "", "a", "b"
	for _, c := range []struct {
		said termAnswer
		want bool
	}{
		{termAnswer{Term: 4, Voted: &a}, true},
		{termAnswer{Term: 5, Voted: &a}, false},
		{termAnswer{Term: 5, Voted: &b}, true},
		{termAnswer{Term: 5, Voted: &no}, true},
		{termAnswer{Term: 5, Voted: &no, Leader: a}, false}, // it has asked, too
		{termAnswer{Term: 6, Voted: &b}, false},
		{termAnswer{Term: 4}, false}, // an older gateway
	} {
		if got := c.said.notElected("a", 5); got != c.want {
			t.Errorf("%+v: %t", c.said, got)
		}
	}
}

// TestSlowSuccessor: who was told to take over the lead may do so as long as the term
// lasts, also after the leader has told another one.
func TestSlowSuccessor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		five := n.five(t)
		var leader *gateway
		until(t, "all follow it", func() bool {
			leader = leaderOf(t, five)
			return !slices.ContainsFunc(five, func(g *gateway) bool { return g.leaders.follows() != leader.stats().Server })
		})
		others := without(five, leader)
		for _, successor := range others[:2] {
			leader.leaders.noteSuccessor(successor.stats().Server)
		}
		for i, successor := range others {
			for _, voter := range []*gateway{leader, others[(i+1)%len(others)]} {
				if err := voter.guard.checkTransfer(successor.stats().Server); (err == nil) != (i < 2) {
					t.Errorf("successor %d, voter %s: %v", i, voter.name, err)
				}
			}
		}
	})
}

// TestCandidateAsksAgain: a vote that is lost on the way is asked for again, as long as it
// is of use: not when raft asks again itself, as often as it does while most voters are gone.
func TestCandidateAsksAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		three := n.three(t, nil)
		for _, g := range three {
			g.ready()
		}
		leader := leaderOf(t, three)
		until(t, "two more voters", func() bool { names, _ := leader.Voting(); return len(names) == 3 })
		followers := slices.DeleteFunc(slices.Clone(three), func(g *gateway) bool { return g == leader })
		alone := followers[0]
		followers[1].kill()
		leader.kill()
		lost := errors.New("lost on the way")
		over := retryTransport{n: alone.raftNode}
		for _, c := range []struct {
			name  string
			ahead uint64 // of the term that this gateway stands in
			asks  int
		}{{"this term", 0, 3}, {"another term", 1, 1}} {
			until(t, c.name+": asked as often as it is of use", func() bool {
				var asks int
				var answered uint64
				stood := alone.raft.State() == raft.Candidate
				err := over.askForVote(alone.raft.CurrentTerm()+c.ahead, &answered, func() error {
					if asks++; asks < 3 {
						return lost
					}
					return nil
				})
				return stood && asks == c.asks && (err == nil) == (c.asks == 3)
			})
		}
		until(t, "it says that it takes no call", func() bool { return alone.leaders.term().Waits })
		asked := make(chan struct{}, 10)
		for range cap(asked) {
			go func() { // one per round, as raft does
				_ = over.askForVote(alone.raft.CurrentTerm(), new(uint64), func() error { return lost })
				asked <- struct{}{}
			}()
		}
		rounds := time.After(5 * alone.raftTimeout())
		for i := range cap(asked) {
			select {
			case <-asked:
			case <-rounds:
				t.Fatalf("%d votes are still asked for that were lost %v ago", cap(asked)-i, 5*alone.raftTimeout())
			}
		}
	})
}

// TestCallsBefore: the newest log calls the election, then the lesser id, and nobody waits
// for one that takes no call.
func TestCallsBefore(t *testing.T) {
	me := voterAnswer{"b/1", termAnswer{Term: 7, Last: 20}}
	for _, c := range []struct {
		other  voterAnswer
		before bool
	}{
		{voterAnswer{"a/1", termAnswer{Term: 7, Last: 20}}, true},
		{voterAnswer{"c/1", termAnswer{Term: 7, Last: 20}}, false},
		{voterAnswer{"a/1", termAnswer{Term: 7, Last: 19}}, false},
		{voterAnswer{"c/1", termAnswer{Term: 7, Last: 21}}, true},
		{voterAnswer{"a/1", termAnswer{Term: 7, Last: 21, Waits: true}}, false},
		{voterAnswer{"a/1", termAnswer{Term: 8, Last: 20, Waits: true}}, true}, // it stands already
	} {
		if before := c.other.callsBefore(me); before != c.before {
			t.Errorf("%+v calls before %+v: %v", c.other, me, before)
		}
	}
}
