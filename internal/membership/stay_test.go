package membership

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// fewest returns the smallest number of voters that g's log has agreed on, from an entry on.
func (g *gateway) fewest(from uint64) int {
	least := 99
	for i := max(from, 1); i <= g.raft.LastIndex(); i++ {
		var entry raft.Log
		if err := g.storage.logs.GetLog(i, &entry); err != nil || entry.Type != raft.LogConfiguration {
			continue
		}
		voters := 0
		for _, s := range raft.DecodeConfiguration(entry.Data).Servers {
			if s.Suffrage == raft.Voter {
				voters++
			}
		}
		least = min(least, voters)
	}
	return least
}

// whole waits until three gateways vote.
func whole(t *testing.T, gateways []*gateway) {
	t.Helper()
	settle(t, gateways)
	until(t, "three voters", func() bool { return len(leaderOf(t, gateways).stats().Voters) == 3 })
}

// A gateway without a memory that starts again is another raft server. It takes the place of
// the one before, and there are never fewer than three.
func TestVotersWhileOneRestartsInMemory(t *testing.T) {
	t.Parallel() // it mostly waits
	var n network
	gateways := n.three(t, nil)
	whole(t, gateways)
	for range 2 {
		leads := leaderOf(t, gateways)
		i := (slices.Index(gateways, leads) + 1) % 3
		one, from := gateways[i], leads.raft.LastIndex()
		conf := one.config
		conf.join = []string{leads.gossip}
		one.kill()
		gateways[i] = n.start(t, one.name, conf)
		whole(t, gateways)
		until(t, "the old server is gone", func() bool {
			s := leaderOf(t, gateways).stats()
			return len(s.Voters)+len(s.NonVoters) == 3 && strings.Contains(strings.Join(s.Voters, " "), gateways[i].stats().Server)
		})
		if least := leaderOf(t, gateways).fewest(from + 1); least < 3 {
			t.Errorf("%d voters meanwhile", least)
		}
	}
}

// People take the vote of one that is lost already. Two are left, a pair: one votes.
func TestSuspendOneThatIsLost(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, at := range []string{"leader", "follower"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			var n network
			gateways := n.three(t, nil)
			whole(t, gateways)
			leads := leaderOf(t, gateways)
			others := without(gateways, leads)
			lost, asked := others[0], others[1]
			if at == "leader" {
				asked = leads
			}
			gone := lost.stats().Server
			lost.kill()
			left := without(gateways, lost)
			until(t, "it is lost", func() bool { _, in := asked.View().Named(lost.name); return !in })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := asked.Suspend(ctx, lost.name); err != nil {
				t.Fatal(err)
			}
			for _, id := range leads.voters() {
				if id == gone {
					t.Errorf("%s still votes", id)
				}
			}
			until(t, "one of a pair votes", func() bool { return len(leaderOf(t, left).stats().Voters) == 1 })
			if err := asked.Suspend(ctx, lost.name); err != nil {
				t.Errorf("twice: %v", err)
			}
			if err := asked.Suspend(ctx, "nobody"); !errors.Is(err, ErrCommand) {
				t.Errorf("nobody: %v", err)
			}
		})
	}
}

// One that is taken out by force and lives comes back, and votes.
func TestSuspendOneThatLives(t *testing.T) {
	t.Parallel() // it mostly waits
	var n network
	gateways := n.three(t, nil)
	whole(t, gateways)
	leads := leaderOf(t, gateways)
	one, from := without(gateways, leads)[0], leads.raft.LastIndex()
	node := one.stands().Node
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := leads.Suspend(ctx, one.name); err != nil {
		t.Fatal(err)
	}
	until(t, "it is another incarnation", func() bool { s := one.Standing(); return s.Valid(time.Now()) && s.Node != node })
	whole(t, gateways)
	if least := leaderOf(t, gateways).fewest(from + 1); least < 3 {
		t.Errorf("%d voters meanwhile", least)
	}
}

// Without a majority nobody can be taken out. People are told what to do.
func TestSuspendWithoutMajority(t *testing.T) {
	t.Parallel() // it mostly waits
	var n network
	gateways := n.three(t, nil)
	whole(t, gateways)
	alone := leaderOf(t, gateways)
	for _, g := range without(gateways, alone) {
		g.kill()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	err := alone.Suspend(ctx, without(gateways, alone)[0].name)
	took := time.Since(began)
	t.Logf("after %v: %v", took.Round(10*time.Millisecond), err)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	for _, word := range []string{"1 of 3 voters are seen", "start ", without(gateways, alone)[1].name, " again"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
	if late(took, 5*5*time.Second) {
		t.Errorf("said after %v", took)
	}
}

// One of two that are left leaves in order: the last one goes on, for people have taken both out.
func TestLeaveWhileAnotherIsLost(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			var n network
			root := t.TempDir()
			gateways := n.three(t, func(name string) string { return filepath.Join(root, name) })
			whole(t, gateways)
			lost := without(gateways, leaderOf(t, gateways))[0]
			lost.kill()
			left := without(gateways, lost)
			until(t, "it is lost", func() bool { _, in := left[0].View().Named(lost.name); return !in })
			going := leaderOf(t, left)
			if who == "follower" {
				going = without(left, going)[0]
			}
			last := without(left, going)[0]
			going.leave()
			began := time.Now()
			define(t, last, "p", 1)
			t.Logf("the last one goes on after %v", time.Since(began).Round(time.Millisecond))
			if s := last.stats(); len(s.Voters) != 1 {
				t.Errorf("%+v", s)
			}
			back := n.start(t, lost.name, config{expect: 3, dir: lost.dir, join: []string{last.gossip}})
			settle(t, []*gateway{last, back})
		})
	}
}
