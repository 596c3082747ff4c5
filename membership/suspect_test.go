package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership/lease"
)

func TestApart(t *testing.T) {
	type nodes = []kmutex.Node
	for name, tt := range map[string]struct {
		down map[kmutex.Node][]kmutex.Node
		want nodes
	}{
		"all is well":                 {map[kmutex.Node][]kmutex.Node{1: nil, 2: nil, 3: nil}, nil},
		"two, the youngest":           {map[kmutex.Node][]kmutex.Node{1: nil, 2: {3}, 3: {2}}, nodes{3}},
		"one complains":               {map[kmutex.Node][]kmutex.Node{1: nil, 2: {3}, 3: nil}, nil},
		"the other does not renew":    {map[kmutex.Node][]kmutex.Node{1: nil, 2: {3}}, nil},
		"of oneself":                  {map[kmutex.Node][]kmutex.Node{1: {1}, 2: {2}}, nil},
		"the one with fewer links":    {map[kmutex.Node][]kmutex.Node{1: {2, 3}, 2: {1}, 3: {1}, 4: nil}, nodes{1}},
		"two pairs":                   {map[kmutex.Node][]kmutex.Node{1: {2}, 2: {1}, 3: {4}, 4: {3}}, nodes{2, 4}},
		"a chain":                     {map[kmutex.Node][]kmutex.Node{1: {2}, 2: {1, 3}, 3: {2, 4}, 4: {3}}, nodes{3, 2}},
		"halves that one sees across": {map[kmutex.Node][]kmutex.Node{1: {3, 4}, 2: {3, 4}, 3: {1, 2}, 4: {1, 2}, 5: nil}, nodes{3, 4}},
	} {
		slices.Sort(tt.want)
		if got := apart(tt.down); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Whoever is left has links to all others, and nobody goes without need.
func TestApartLeavesAClique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "members")
		down := make(map[kmutex.Node][]kmutex.Node)
		for a := range n {
			down[kmutex.Node(a+1)] = nil
			for b := range n {
				if rapid.IntRange(0, 3).Draw(t, "down") == 0 {
					down[kmutex.Node(a+1)] = append(down[kmutex.Node(a+1)], kmutex.Node(b+1))
				}
			}
		}
		broken := func(a, b kmutex.Node) bool {
			return a != b && slices.Contains(down[a], b) && slices.Contains(down[b], a)
		}
		out := apart(down)
		for a := range down {
			alone := true
			for b := range down {
				if broken(a, b) {
					alone = false
				}
				if broken(a, b) && !slices.Contains(out, a) && !slices.Contains(out, b) {
					t.Fatalf("%d and %d are left, without a link", a, b)
				}
			}
			if alone && slices.Contains(out, a) {
				t.Fatalf("%d goes, and has all its links", a)
			}
		}
	})
}

func TestEvidence(t *testing.T) {
	e := newEvidence()
	start := time.Now()
	down := map[kmutex.Node]time.Time{7: start}
	// dial has one dial begin at a time after the start, and end.
	dial := func(at time.Duration, failed bool) {
		t.Helper()
		now := start.Add(at)
		if due := e.follow(down, now); !slices.Equal(due, []kmutex.Node{7}) {
			t.Fatalf("at %v: %v are due", at, due)
		}
		e.dialed(7, e.row(7), now, failed)
	}
	dial(0, true)
	if due := e.follow(down, start.Add(50*time.Millisecond)); due != nil {
		t.Errorf("%v are due again at once", due)
	}
	dial(100*time.Millisecond, true)
	if gone := e.gone(); len(gone) != 0 {
		t.Errorf("two dials are enough: %v", gone)
	}
	dial(200*time.Millisecond, false) // slow, not gone
	dial(300*time.Millisecond, true)
	dial(400*time.Millisecond, true)
	if gone := e.gone(); len(gone) != 0 {
		t.Errorf("not three in a row: %v", gone)
	}
	dial(500*time.Millisecond, true)
	if since, ok := e.gone()[7]; !ok || !since.Equal(start.Add(300*time.Millisecond)) {
		t.Errorf("gone %v since %v", ok, since.Sub(start))
	}
	// A dial of before the last answer says nothing about now.
	e.follow(down, start.Add(600*time.Millisecond))
	row := e.row(7)
	dial(700*time.Millisecond, false)
	e.dialed(7, row, start.Add(600*time.Millisecond), true)
	dial(800*time.Millisecond, true)
	dial(900*time.Millisecond, true)
	if gone := e.gone(); len(gone) != 0 {
		t.Errorf("a late failure counts: %v", gone)
	}
	e.follow(nil, start.Add(time.Second))
	e.dialed(7, 0, start, true) // its link is up: nothing to say
	if len(e.trails) != 0 {
		t.Errorf("%d trails are kept", len(e.trails))
	}
}

// stuckLayer fails every dial in the same way.
type stuckLayer struct {
	StreamLayer
	err error
}

func (s stuckLayer) Dial(context.Context, string) (net.Conn, error) { return nil, s.err }

func TestWhichDialsFail(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, false},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, false},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), false},
		{fmt.Errorf("dial: %w", os.ErrDeadlineExceeded), false},
		{errors.New("the other end is busy"), true},
		{errors.New("tls: bad certificate"), true},
		{syscall.ECONNRESET, true},
	} {
		c := &Cluster{config: Config{Control: stuckLayer{err: tt.err}}}
		if got := c.reaches(t.Context(), "here"); got != tt.want {
			t.Errorf("%v: reached %v", tt.err, got)
		}
	}
}

func TestPenanceGrows(t *testing.T) {
	var p penance
	now := time.Now()
	if !p.over("a", now) {
		t.Error("it has done nothing")
	}
	for _, wait := range []time.Duration{1, 2, 4, 8} {
		wait *= time.Second
		p.add("a", now)
		if p.over("a", now.Add(wait-1)) || !p.over("a", now.Add(wait)) || !p.over("b", now) {
			t.Errorf("it does not wait for %v", wait)
		}
		now = now.Add(wait + time.Second)
	}
	now = now.Add(time.Hour)
	p.add("a", now)
	if !p.over("a", now.Add(shortPenance)) {
		t.Error("what was an hour ago counts")
	}
}

// A leader grants nothing without a majority that confirms it, though it was
// never told that it leads no more; and it still grants once they answer.
func TestUnconfirmedLeaderGrantsNothing(t *testing.T) {
	var n network
	gateways := n.three(t, nil)
	settle(t, gateways)
	leader := leaderOf(t, gateways)
	s := leader.stands()
	ask := func(tag uint64) <-chan error {
		done := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			done <- leader.grants.ask(ctx, plea{Renewal: lease.Renewal{Node: s.Node, Tag: tag}})
		}()
		return done
	}
	if err := <-ask(1000); err != nil {
		t.Fatalf("a confirmed leader does not grant: %v", err)
	}
	// A voter says that it is in a later term, as it would after an election.
	leader.grants.mu.Lock()
	grantor := leader.grants.grantor
	leader.grants.mu.Unlock()
	leader.grants.answer(grantor, 0, "somebody", grantor.Term()+1)
	if grantor.Receive(lease.Renewal{Node: s.Node, Tag: 1001}, 0) || grantor.Waiting() {
		t.Error("a leader that heard of a later term grants")
	}
	// It was not true: it makes sure that it leads, and goes on.
	tag := uint64(1002)
	until(t, "it grants again", func() bool { tag++; return <-ask(tag) == nil })
}

// Who is asked for its term must be the server that is meant.
func TestOtherServerDoesNotConfirm(t *testing.T) {
	var n network
	g := n.start(t, "a", config{expect: 1})
	g.ready()
	var said termAnswer
	if err := g.call(t.Context(), "GET", g.peerAddr, pathTerm+"?server=a%2Felse", nil, &said); err == nil {
		t.Errorf("another server's question is answered: %+v", said)
	}
	if err := g.call(t.Context(), "GET", g.peerAddr, pathTerm+"?server="+g.Stats().Server, nil, &said); err != nil || said.Term != g.Stats().Term {
		t.Errorf("%+v, %v", said, err)
	}
}
