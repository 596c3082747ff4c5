package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fewest watches how many vote as far as g knows, and returns the smallest number so far.
func (g *gateway) fewest() func() int {
	var least atomic.Int64
	least.Store(99)
	g.owner.Go(func() {
		for {
			changed := g.Changed()
			least.Store(min(least.Load(), int64(len(g.voters()))))
			select {
			case <-changed:
			case <-g.closing.Done():
				return
			}
		}
	})
	return func() int { return int(least.Load()) }
}

// whole waits until three gateways vote.
func whole(t *testing.T, gateways []*gateway) {
	t.Helper()
	settle(t, gateways)
	until(t, "three voters", func() bool { return len(leaderOf(t, gateways).stats().Voters) == 3 })
}

// inRole returns the gateway that leads, or one that does not.
func inRole(t *testing.T, leads bool, of []*gateway) *gateway {
	t.Helper()
	if leads {
		return leaderOf(t, of)
	}
	return followerOf(t, of)
}

// One of three is lost for longer than it counts as away, and then another. When the first is
// back, it and the third stand again: those with a data_dir are killed, the others cut off, for a
// process without one takes its vote with it.
func TestLostForLong(t *testing.T) {
	for _, durable := range []bool{true, false} {
		for _, first := range []bool{true, false} {
			for _, second := range []bool{true, false} {
				t.Run(fmt.Sprintf("data_dir %t, led %t, then led %t", durable, first, second), func(t *testing.T) {
					virtual(t, func(t *testing.T) { loseTwo(t, durable, first, second) })
				})
			}
		}
	}
}

func loseTwo(t *testing.T, durable, first, second bool) {
	const lease = 3 * time.Second
	var n network
	root := t.TempDir()
	gateways := n.leased(t, lease, func(name string) string {
		if durable {
			return filepath.Join(root, name)
		}
		return ""
	})
	whole(t, gateways)
	one := inRole(t, first, gateways)
	left := without(gateways, one)
	if durable {
		one.kill()
	} else {
		n.block(one, left[0])
		n.block(one, left[1])
	}
	until(t, "it is lost", func() bool { _, in := left[0].View().Named(one.name); return !in })
	time.Sleep(75 * time.Second)
	if voters := leaderOf(t, left).voters(); len(voters) != 3 {
		t.Errorf("%v vote", voters)
	}
	two := inRole(t, second, left)
	three := without(left, two)[0]
	two.kill()
	time.Sleep(2 * lease)
	if three.Standing().Valid(time.Now()) {
		t.Error("one of three stands")
	}
	began := time.Now()
	if durable {
		one = n.start(t, one.name, config{expect: 3, lease: lease, dir: one.dir, join: []string{three.gossip}})
	} else {
		n.heal()
	}
	one.stands()
	three.stands()
	took := time.Since(began)
	if t.Logf("two of three stand after %v", took.Round(time.Millisecond)); took > 5*time.Second {
		t.Errorf("two of three stand after %v", took)
	}
	define(t, three, "p", 1)
}

// A gateway without a memory that starts again is another raft server. It takes the place of
// the one before, and there are never fewer than three.
func TestVotersWhileOneRestartsInMemory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var log notes
		n := network{logs: slog.New(slog.NewTextHandler(&log, nil))}
		gateways := n.three(t, nil)
		whole(t, gateways)
		for range 2 {
			leads := leaderOf(t, gateways)
			i := (slices.Index(gateways, leads) + 1) % 3
			one, fewest := gateways[i], leads.fewest()
			conf := one.config
			conf.join = []string{leads.gossip}
			one.kill()
			gateways[i] = n.start(t, one.name, conf)
			whole(t, gateways)
			until(t, "the old server is gone", func() bool {
				s := leaderOf(t, gateways).stats()
				return len(s.Voters) == 3 && slices.Contains(s.Voters, gateways[i].stats().Server)
			})
			if least := fewest(); least < 3 {
				t.Errorf("%d voters meanwhile", least)
			}
		}
		if text := log.String(); !strings.Contains(text, "votes from now on") || strings.Contains(text, "no longer votes") {
			t.Errorf("the log says that a gateway does not vote, and all do:\n%s", text)
		}
	})
}

// People take the vote of one that is lost already. Two are left, a pair: one votes.
func TestSuspendOneThatIsLost(t *testing.T) {
	for _, atLeader := range []bool{true, false} {
		t.Run(fmt.Sprintf("at the leader %t", atLeader), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				gateways := n.three(t, nil)
				whole(t, gateways)
				lost := followerOf(t, gateways)
				left := without(gateways, lost)
				gone := lost.stats().Server
				lost.kill()
				asked := inRole(t, atLeader, left)
				until(t, "it is lost", func() bool { _, in := asked.View().Named(lost.name); return !in })
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				defer cancel()
				if err := asked.Suspend(ctx, lost.name); err != nil {
					t.Fatal(err)
				}
				if voters := leaderOf(t, left).voters(); slices.Contains(voters, gone) {
					t.Errorf("%v still vote", voters)
				}
				until(t, "one of a pair votes", func() bool { return len(leaderOf(t, left).voters()) == 1 })
				if err := asked.Suspend(ctx, lost.name); err != nil {
					t.Errorf("twice: %v", err)
				}
				if err := asked.Suspend(ctx, "nobody"); !errors.Is(err, ErrCommand) {
					t.Errorf("nobody: %v", err)
				}
			})
		})
	}
}

// One that is taken out by force and lives comes back, and votes.
func TestSuspendOneThatLives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		whole(t, gateways)
		leads := leaderOf(t, gateways)
		one, fewest := followerOf(t, gateways), leads.fewest()
		node := one.stands().Node
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if err := leads.Suspend(ctx, one.name); err != nil {
			t.Fatal(err)
		}
		until(t, "it is another incarnation", func() bool { s := one.Standing(); return s.Valid(time.Now()) && s.Node != node })
		whole(t, gateways)
		if least := fewest(); least < 3 {
			t.Errorf("%d voters meanwhile", least)
		}
	})
}

// Without a majority nobody can be taken out. People are told what to do.
func TestSuspendWithoutMajority(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		whole(t, gateways)
		alone := leaderOf(t, gateways)
		others := without(gateways, alone)
		for _, g := range others {
			g.kill()
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		began := time.Now()
		err := alone.Suspend(ctx, others[0].name)
		took := time.Since(began)
		t.Logf("after %v: %v", took, err)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		want := fmt.Sprintf("1 of 3 voters are seen, and a majority must be: start %s or %s again", others[0].name, others[1].name)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
		if took > 4500*time.Millisecond { // the command waits for 5 s
			t.Errorf("said after %v", took)
		}
	})
}

// Nobody gets through to the voter of a pair, and gossip takes it for alive: people are told that it is
// the one to start.
func TestSuspendTheOnlyVoter(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		whole(t, gateways)
		going := followerOf(t, gateways)
		left := without(gateways, going)
		going.leave()
		until(t, "both know that one votes", func() bool { return len(left[0].voters()) == 1 && len(left[1].voters()) == 1 })
		voter := leaderOf(t, left)
		other := without(left, voter)[0]
		n.block(voter, other)
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		err := other.Suspend(ctx, voter.name)
		if want := fmt.Sprintf("0 of 1 voters are seen, and a majority must be: start %s again", voter.name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	})
}

// One of two that are left leaves in order: the last one goes on, for people have taken both out.
func TestLeaveWhileAnotherIsLost(t *testing.T) {
	for _, leader := range []bool{true, false} {
		t.Run(fmt.Sprintf("it leads %t", leader), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var n network
				root := t.TempDir()
				gateways := n.three(t, func(name string) string { return filepath.Join(root, name) })
				whole(t, gateways)
				lost := followerOf(t, gateways)
				lost.kill()
				left := without(gateways, lost)
				until(t, "it is lost", func() bool { _, in := left[0].View().Named(lost.name); return !in })
				going := inRole(t, leader, left)
				last := without(left, going)[0]
				going.leave()
				define(t, last, "p", 1)
				if s := last.stats(); len(s.Voters) != 1 {
					t.Errorf("%+v", s)
				}
				back := n.start(t, lost.name, config{expect: 3, dir: lost.dir, join: []string{last.gossip}})
				settle(t, []*gateway{last, back})
			})
		})
	}
}
