package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptrace"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/peercall"
	"github.com/kgate/kgate/kmutex"
)

func TestProber(t *testing.T) {
	e := newProber(nil, nil)
	start := time.Now()
	down := map[kmutex.Node]time.Time{7: start}
	// dial has one dial begin at a time after the start, and end.
	dial := func(at time.Duration, failed bool) {
		t.Helper()
		now := start.Add(at)
		if due := e.follow(down, now); !slices.Equal(due, []kmutex.Node{7}) {
			t.Fatalf("at %v: %v are due", at, due)
		}
		e.dialed(7, e.streak(7), now, failed)
	}
	dial(0, true)
	if due := e.follow(down, start.Add(50*time.Millisecond)); due != nil {
		t.Errorf("%v are due again at once", due)
	}
	dial(100*time.Millisecond, true)
	if gone := e.unreachable(); len(gone) != 0 {
		t.Errorf("two dials are enough: %v", gone)
	}
	dial(200*time.Millisecond, false) // slow, not gone
	dial(300*time.Millisecond, true)
	dial(400*time.Millisecond, true)
	if gone := e.unreachable(); len(gone) != 0 {
		t.Errorf("not three in a row: %v", gone)
	}
	dial(500*time.Millisecond, true)
	if since, ok := e.unreachable()[7]; !ok || !since.Equal(start.Add(300*time.Millisecond)) {
		t.Errorf("gone %v since %v", ok, since.Sub(start))
	}
	// A dial of before the last answer says nothing about now.
	e.follow(down, start.Add(600*time.Millisecond))
	row := e.streak(7)
	dial(700*time.Millisecond, false)
	e.dialed(7, row, start.Add(600*time.Millisecond), true)
	dial(800*time.Millisecond, true)
	dial(900*time.Millisecond, true)
	if gone := e.unreachable(); len(gone) != 0 {
		t.Errorf("a late failure counts: %v", gone)
	}
	e.follow(nil, start.Add(time.Second))
	e.dialed(7, 0, start, true) // its link is up: nothing to say
	if len(e.byNode) != 0 {
		t.Errorf("%d byNode are kept", len(e.byNode))
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
		n := &raftNode{config: Config{Control: stuckLayer{err: tt.err}}, machine: newMachine(slog.New(slog.DiscardHandler))}
		if got := newPeerClient(n, nil).reaches(t.Context(), "here"); got != tt.want {
			t.Errorf("%v: reached %v", tt.err, got)
		}
	}
}

// slowLayer connects after a trip, and answers so long after the dial began.
type slowLayer struct {
	StreamLayer
	trip, answer time.Duration
}

func (s slowLayer) Dial(ctx context.Context, _ string) (net.Conn, error) {
	answer := time.After(s.answer)
	select {
	case <-time.After(s.trip):
		httptrace.ContextClientTrace(ctx).ConnectDone("tcp", "here", nil)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-answer:
		return nil, errors.New("the other end is busy")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Who is far away has longer to answer, and who is near and silent has not.
func TestHowLongDialsTake(t *testing.T) {
	const lease, never = 3 * time.Second, time.Hour
	for _, tt := range []struct {
		trip, answer, took time.Duration
		want               bool
	}{
		{never, never, 750 * time.Millisecond, false},
		{time.Millisecond, never, 750 * time.Millisecond, false},
		{300 * time.Millisecond, never, 1200 * time.Millisecond, false},
		{300 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &raftNode{config: Config{Lease: lease, Control: slowLayer{trip: tt.trip, answer: tt.answer}}, machine: newMachine(slog.New(slog.DiscardHandler))}
			began := time.Now()
			if got := newPeerClient(n, nil).reaches(t.Context(), "here"); got != tt.want || time.Since(began) != tt.took {
				t.Errorf("connected after %v, answered after %v: reached %v after %v", tt.trip, tt.answer, got, time.Since(began))
			}
		})
	}
}

// A leader grants nothing without a majority that confirms it, though it was
// never told that it leads no more; and it still grants once they answer.
func TestUnconfirmedLeaderGrantsNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
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
				done <- leader.leases.ask(ctx, renewalRequest{Renewal: lease.Renewal{Node: s.Node, Tag: tag}})
			}()
			return done
		}
		// A renewal of the gateway's own may take the place of one of these.
		tag := uint64(1000)
		until(t, "a confirmed leader grants", func() bool { tag++; return <-ask(tag) == nil })
		// A voter says that it is in a later term, as it would after an election.
		leader.leases.mu.Lock()
		grantor := leader.leases.grantor
		leader.leases.mu.Unlock()
		leader.leases.answer(grantor, 0, "somebody", grantor.Term()+1)
		if grantor.Receive(lease.Renewal{Node: s.Node, Tag: tag + 1}, 0) || grantor.Waiting() {
			t.Error("a leader that heard of a later term grants")
		}
		// It was not true: it makes sure that it leads, and goes on.
		until(t, "it grants again", func() bool { tag++; return <-ask(tag) == nil })
	})
}

// Who is asked for its term must be the server that is meant.
func TestOtherServerDoesNotConfirm(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		var said termAnswer
		self := peercall.To{Name: "a", Addr: g.peerAddr}
		if err := g.peers.call(t.Context(), "GET", self, pathTerm+"?server=a%2Felse", nil, &said); err == nil {
			t.Errorf("another server's question is answered: %+v", said)
		}
		if err := g.peers.call(t.Context(), "GET", self, pathTerm+"?server="+g.stats().Server, nil, &said); err != nil || said.Term != g.stats().Term {
			t.Errorf("%+v, %v", said, err)
		}
	})
}
