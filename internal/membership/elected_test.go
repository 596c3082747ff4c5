package membership

import (
	"errors"
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

// TestStatesAreCompared: a gateway whose state differs from its leader's ends within a lease of the next
// entry; the others go on. If it is the leader's that is wrong, both others end.
func TestStatesAreCompared(t *testing.T) {
	const lease = 2 * time.Second
	for _, name := range []string{"a follower", "the leader"} {
		t.Run(name, func(t *testing.T) {
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
				wrong, end := leader, without(three, leader)
				if name == "a follower" {
					wrong, end = end[0], end[:1]
				}
				wrong.machine.Apply(entryOf(t, wrong.machine.newestCheckpoint().Index+1, 1, setK("p", 50)))
				if err := leader.proposer.applyHere(setK("p", 3)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(lease)
				for _, g := range three {
					select {
					case err := <-g.Failed():
						if !slices.Contains(end, g) || !errors.Is(err, errDiffers) || !strings.Contains(err.Error(), "move its data_dir") {
							t.Errorf("%s ends: %v", g.name, err)
						}
					default:
						if slices.Contains(end, g) {
							t.Errorf("%s goes on", g.name)
						}
					}
				}
			})
		})
	}
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
