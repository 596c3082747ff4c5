package pool

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// trio is three gateways of one pool, in its first epoch, home is the first. What
// they send each other waits to be delivered.
type trio struct {
	t     *testing.T
	now   time.Duration
	pools map[kmutex.Node]*Pool
	mail  []sent
	asked []time.Duration // when a new epoch was asked for
	view  View
}

type sent struct {
	from   kmutex.Node
	letter Letter
}

func newTrio(t *testing.T, k int) *trio {
	w := &trio{t: t, now: time.Hour, pools: make(map[kmutex.Node]*Pool)}
	w.view = View{Members: []kmutex.Node{1, 2, 3}, Newest: 3, K: k, Epoch: 1, Began: 3, Home: 1, Tickets: true}
	for _, n := range w.view.Members {
		w.pools[n] = New(Config{
			Self: n, Binding: new(coordinator.Late), Audit: true,
			Interval: func() time.Duration { return 0 },
			Placed:   func(t kmutex.Request) (int64, bool) { return int64(t), true },
		})
		w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
	}
	w.deliver(nil)
	return w
}

func (w *trio) carry(n kmutex.Node, fx *Effects) *Effects {
	for _, l := range fx.Letters {
		w.mail = append(w.mail, sent{n, l})
	}
	if fx.ChangeEpoch != 0 {
		w.asked = append(w.asked, w.now)
	}
	return fx
}

// next moves the pool to another epoch at gateway n.
func (w *trio) next(n kmutex.Node, disk Disk) {
	v := w.view
	v.Epoch++
	w.carry(n, w.pools[n].Follow(w.now, v, disk))
}

// deliver delivers all letters that keep lets through, and drops the others.
func (w *trio) deliver(keep func(sent) bool) {
	w.t.Helper()
	for len(w.mail) > 0 {
		s := w.mail[0]
		w.mail = w.mail[1:]
		if keep != nil && !keep(s) {
			continue
		}
		fx, err := w.pools[s.letter.To].Take(w.now, s.from, &s.letter)
		if errors.Is(err, ErrNotYet) {
			w.carry(s.from, w.pools[s.from].Undelivered(w.now, s.letter))
		} else if err != nil {
			w.t.Errorf("%+v: %v", s, err)
		}
		w.carry(s.letter.To, fx)
	}
}

func (w *trio) wake(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += 10 * time.Millisecond {
		for _, n := range w.view.Members {
			w.carry(n, w.pools[n].Wake(w.now))
		}
	}
}

func (w *trio) states(want ...State) {
	w.t.Helper()
	for i, s := range want {
		if got := w.pools[kmutex.Node(i+1)].State(); got != s {
			w.t.Errorf("gateway %d is %v, want %v", i+1, got, s)
		}
	}
}

// The states of an epoch that begins in order, one report ahead of home's view.
func TestStates(t *testing.T) {
	w := newTrio(t, 2)
	w.states(Installed, Installed, Installed)
	w.next(2, DiskNone)
	w.deliver(nil) // home has not heard of the epoch
	w.next(3, DiskUnread)
	w.states(Installed, Reporting, Frozen)
	w.next(1, DiskNone)
	w.states(Reporting, Reporting, Frozen)
	began := w.now
	w.wake(20 * time.Millisecond) // the report goes again
	w.deliver(nil)
	if missing, since := w.pools[1].Missing(); !slices.Equal(missing, []kmutex.Node{3}) || since != began {
		t.Errorf("home misses %v since %v", missing, since)
	}
	w.deliver(nil)
	w.states(Reporting, Reporting, Frozen)
	w.carry(3, w.pools[3].Loaded(w.now, DiskNone))
	w.states(Reporting, Reporting, Reporting)
	w.deliver(nil)
	w.states(Installed, Installed, Installed)
	if missing, _ := w.pools[1].Missing(); len(missing) > 0 {
		t.Errorf("home misses %v", missing)
	}
	if err := w.pools[2].End(); err != nil {
		t.Error(err)
	}
	if _, err := w.pools[2].Step(0, &kmutex.Event{Kind: kmutex.EventAskDue}); err == nil {
		t.Error("a pool without an incarnation takes in an event")
	}
	w.states(Installed, Void, Installed)
}

// A gateway that joins reports before home has the view with it, and the last founder does, too: it
// is not forgotten.
func TestJoinsBeforeItsView(t *testing.T) {
	w := newTrio(t, 2)
	w.view.Epoch = 2
	for _, n := range []kmutex.Node{1, 2} {
		w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
	}
	w.deliver(nil)
	w.view.Members, w.view.Newest = []kmutex.Node{1, 2, 3, 4}, 4
	w.pools[4] = New(Config{Self: 4, Binding: new(coordinator.Late), Interval: func() time.Duration { return 0 }})
	for _, n := range []kmutex.Node{4, 3, 2, 1} {
		w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
		w.deliver(nil)
	}
	w.wake(time.Second)
	w.deliver(nil)
	w.states(Installed, Installed, Installed, Installed)
}

// Home answers a gateway that joins: at once when the epoch runs, else with the others. Its disk
// does not matter.
func TestJoins(t *testing.T) {
	for _, epoch := range []uint64{1, 2} {
		w := newTrio(t, 2)
		w.view.Members, w.view.Newest, w.view.Epoch = []kmutex.Node{1, 2, 3, 4}, 4, epoch
		w.pools[4] = New(Config{Self: 4, Binding: new(coordinator.Late), Interval: func() time.Duration { return 0 }})
		w.carry(4, w.pools[4].Follow(w.now, w.view, DiskUnread))
		for _, n := range []kmutex.Node{1, 2} {
			w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
		}
		w.deliver(nil)
		if epoch == 2 { // home waits for the third
			w.states(Reporting, Reporting, Installed, Reporting)
		}
		w.carry(3, w.pools[3].Follow(w.now, w.view, DiskNone))
		w.deliver(nil)
		w.states(Installed, Installed, Installed, Installed)
	}
}

// A plan that fails, or is refused, has a new epoch asked for: at once, and then
// at a bounded rate until there is one.
func TestAsksUntilAnEpochBegins(t *testing.T) {
	spoil := map[string]func(*sent){
		"plan": func(s *sent) {
			if r := s.letter.Report; r != nil {
				worse := *r
				worse.MaxK = -1
				s.letter.Report = &worse
			}
		},
		"install": func(s *sent) {
			if a := s.letter.Answer; a != nil {
				in := *a.Install
				in.Running = []kmutex.Grant{{Request: 7, Token: 1}}
				s.letter.Answer = &replication.EpochAnswer{Install: &in}
			}
		},
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			w := newTrio(t, 2)
			for _, n := range w.view.Members {
				w.next(n, DiskNone)
			}
			w.deliver(func(s sent) bool {
				if s.from != 2 && s.letter.To != 2 {
					return true
				}
				spoil(&s)
				fx, err := w.pools[s.letter.To].Take(w.now, s.from, &s.letter)
				if err != nil {
					t.Error(err)
				}
				w.carry(s.letter.To, fx)
				return false
			})
			if len(w.asked) != 1 {
				t.Fatalf("a new epoch was asked for %d times", len(w.asked))
			}
			w.wake(10 * time.Minute)
			if n := len(w.asked); n < 10 || n > 20 {
				t.Errorf("asked for %d times in 10 minutes", n)
			}
			if first := w.asked[1] - w.asked[0]; first > 2*time.Second {
				t.Errorf("asked for again after %v", first)
			}
			w.mail = nil
			w.view.Epoch++
			for _, n := range w.view.Members {
				w.next(n, DiskNone)
			}
			w.deliver(nil)
			w.states(Installed, Installed, Installed)
			asked := len(w.asked)
			w.wake(time.Minute)
			if len(w.asked) > asked {
				t.Error("asked for although the epoch has begun")
			}
		})
	}
}

// A letter that did not arrive goes again, less and less often, until its epoch is
// over.
func TestLettersGoAgain(t *testing.T) {
	for _, lost := range []func(Letter) bool{
		func(l Letter) bool { return l.Report != nil }, func(l Letter) bool { return l.Answer != nil },
	} {
		w := newTrio(t, 2)
		for _, n := range w.view.Members {
			w.next(n, DiskNone)
		}
		tries := 0
		for end := w.now + 10*time.Second; w.now < end; w.wake(10 * time.Millisecond) {
			w.deliver(func(s sent) bool {
				if !lost(s.letter) || s.letter.To != 2 && s.from != 2 {
					return true
				}
				tries++
				w.carry(s.from, w.pools[s.from].Undelivered(w.now, s.letter))
				return false
			})
		}
		if tries < 10 || tries > 60 {
			t.Errorf("sent %d times in 10 s", tries)
		}
		if len(w.asked) > 0 {
			t.Error("a new epoch was asked for")
		}
		w.wake(time.Second)
		w.deliver(nil)
		w.states(Installed, Installed, Installed)
	}
}

// A message that the line misses has a new epoch asked for, but not one of an epoch
// that is over.
func TestLostMessage(t *testing.T) {
	w := newTrio(t, 2)
	w.carry(2, w.pools[2].MessageLost(w.now, 7))
	if len(w.asked) > 0 {
		t.Error("asked for a new epoch after a message of another one")
	}
	w.carry(2, w.pools[2].MessageLost(w.now, 1))
	if len(w.asked) != 1 {
		t.Errorf("asked for a new epoch %d times", len(w.asked))
	}
}

// A message to a member of whom the view here does not tell yet goes with the view
// that does.
func TestEarly(t *testing.T) {
	w := newTrio(t, 2)
	ask := kmutex.Message{Kind: kmutex.KindRequest, Epoch: 1, Origin: 4}
	fx, err := w.pools[1].Step(0, &kmutex.Event{Kind: kmutex.EventReceive, From: 2, Message: &ask})
	if err != nil || len(fx.Messages) > 0 {
		t.Fatalf("%v, %v", fx.Messages, err)
	}
	v := w.view
	v.Members, v.Newest = []kmutex.Node{1, 2, 3, 4}, 4
	if fx := w.pools[1].Follow(w.now, v, DiskNone); len(fx.Messages) != 1 || fx.Messages[0].To != 4 {
		t.Errorf("sent: %v, want the baton to node 4", fx.Messages)
	}
}

// What never left this gateway is free again with the epoch that the loss of its
// receiver begins.
func TestUnsent(t *testing.T) {
	w := newTrio(t, 2)
	p := w.pools[3] // has none of its own
	p.Unsent(&kmutex.Message{Kind: kmutex.KindTokens, Epoch: 7, Free: kmutex.NewTokenSet(1)})
	p.Unsent(&kmutex.Message{Kind: kmutex.KindToken, Epoch: 1, Token: 1})
	w.next(3, DiskNone)
	if got := w.mail[len(w.mail)-1].letter.Report.Free; !slices.Equal(got.Tokens(), []kmutex.Token{1}) {
		t.Errorf("free: %v", got)
	}
}

// Tokens that a lost gateway may have given to tickets which nobody knows come back
// when these have run out, also if another gateway is home by then.
func TestUnknownTicketsAndAnotherHome(t *testing.T) {
	w := newTrio(t, 2)
	follow := func(epoch uint64, home kmutex.Node) {
		w.view.Epoch, w.view.Home = epoch, home
		w.view.Lost, w.view.Gone = []replication.Lost{{Node: 9, Successor: 3}}, []kmutex.Node{9}
		w.view.Newest = 9
		for _, n := range w.view.Members {
			w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
		}
		w.deliver(nil)
		w.states(Installed, Installed, Installed)
	}
	// The tokens leave home with the baton, and are never seen again.
	ask := kmutex.Message{Kind: kmutex.KindRequest, Epoch: 1, Origin: 2}
	if _, err := w.pools[1].Step(0, &kmutex.Event{Kind: kmutex.EventReceive, From: 2, Message: &ask}); err != nil {
		t.Fatal(err)
	}
	w.view.Wait, w.view.MaxTTL = 3300*time.Millisecond, 2*time.Minute
	began, runOut := w.now, w.view.Wait+w.view.MaxTTL*11/10 // and what is aborted at the end
	follow(2, 1)
	if got := w.pools[3].Withheld().Len(); got == 0 {
		t.Error("no tokens are withheld")
	}
	w.wake(w.view.MaxTTL / 2)
	w.mail = nil
	follow(3, 2)
	w.wake(w.view.MaxTTL)
	if len(w.asked) == 0 || w.asked[0]-began < runOut || w.asked[0]-began > runOut+time.Second {
		t.Fatalf("a new epoch was asked for at %v, want one at %v", w.asked, began+runOut)
	}
	w.mail = nil
	follow(4, 3)
	if got := w.pools[3].Withheld().Len(); got > 0 {
		t.Errorf("%d tokens are still withheld", got)
	}
}

// What nobody knew when an epoch was planned may be known to a gateway that joins just
// before or after: it reports at once, in another epoch, and the tokens come back. One that
// knows nothing either is asked once.
func TestJoinsWithTickets(t *testing.T) {
	for _, c := range []struct{ before, knows bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		w := newTrio(t, 2)
		w.view.Wait, w.view.MaxTTL = 3300*time.Millisecond, 2*time.Minute
		ask := kmutex.Message{Kind: kmutex.KindRequest, Epoch: 1, Origin: 2}
		if _, err := w.pools[1].Step(0, &kmutex.Event{Kind: kmutex.EventReceive, From: 2, Message: &ask}); err != nil {
			t.Fatal(err)
		}
		follow := func() {
			for _, n := range w.view.Members {
				w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
			}
		}
		w.view.Epoch, w.view.Newest, w.view.Gone = 2, 9, []kmutex.Node{9}
		w.view.Lost = []replication.Lost{{Node: 9, Successor: 3}}
		follow()
		if !c.before {
			w.deliver(nil)
			w.wake(10 * time.Second)
			if len(w.asked) > 0 {
				t.Error("an epoch was asked for, and nobody had joined")
			}
		}
		memory := new(Memory)
		if c.knows {
			if err := memory.Replicas().Restore(replication.NewTable(9).Since(0)); err != nil {
				t.Fatal(err)
			}
		}
		w.pools[10] = New(Config{
			Self: 10, Binding: new(coordinator.Late), Memory: memory, Interval: func() time.Duration { return 0 },
			Placed: func(t kmutex.Request) (int64, bool) { return int64(t), true },
		})
		w.view.Members, w.view.Newest = []kmutex.Node{1, 2, 3, 10}, 10
		follow()
		w.deliver(nil)
		if len(w.asked) != 1 || w.pools[1].Withheld().Len() == 0 {
			t.Fatalf("%+v: epochs were asked for at %v, want one at %v; withheld: %v", c, w.asked, w.now, w.pools[1].Withheld())
		}
		w.view.Epoch, w.view.Began = 3, 10
		follow()
		w.deliver(nil)
		w.wake(time.Minute)
		if got := w.pools[1].Withheld().Len(); got > 0 == c.knows || len(w.asked) != 1 {
			t.Errorf("%+v: %d tokens are withheld, epochs were asked for at %v", c, got, w.asked)
		}
	}
}

// An incarnation that ends before its disk is read has told nobody of a ticket, and its
// process knows so.
func TestEndsBeforeItsDiskIsRead(t *testing.T) {
	memory := new(Memory)
	p := New(Config{Self: 5, Binding: new(coordinator.Late), Memory: memory, Interval: func() time.Duration { return time.Second }})
	p.Follow(0, View{Members: []kmutex.Node{5}, Newest: 5, K: 1, Epoch: 1, Began: 5, Home: 5, Tickets: true}, DiskUnread)
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	if r := memory.Replicas().Of(5); r == nil || len(r.Records()) > 0 {
		t.Errorf("%+v, want an empty table of node 5", r)
	}
	// What the disk had is of an incarnation before it.
	for _, owner := range []kmutex.Node{2, 4} {
		if err := memory.Replicas().Restore(replication.NewTable(owner).Since(0)); err != nil {
			t.Fatal(err)
		}
	}
	p = New(Config{Self: 6, Binding: new(coordinator.Late), Memory: memory, Interval: func() time.Duration { return time.Second }})
	p.Follow(0, View{
		Members: []kmutex.Node{2, 6}, Newest: 6, K: 1, Epoch: 1, Began: 6, Home: 2, Tickets: true, Gone: []kmutex.Node{4, 5},
		Missed: func(owner kmutex.Node, kept func(kmutex.Node) bool) bool {
			if !kept(4) || kept(5) {
				t.Errorf("of node 4: %t, of node 5: %t; want what node 4 kept", kept(4), kept(5))
			}
			return owner == 2
		},
	}, DiskRead)
}

// A push is acknowledged when the disk has it, or after a second: a gateway that is killed and comes back at once
// is taken to know what it has acknowledged.
func TestAcknowledgesWhatIsWritten(t *testing.T) {
	for _, disk := range []Disk{DiskNone, DiskRead} {
		p := New(Config{Self: 5, Binding: new(coordinator.Late), Interval: func() time.Duration { return time.Second }})
		p.Follow(0, View{Members: []kmutex.Node{2, 5}, Newest: 5, K: 1, Epoch: 1, Began: 5, Home: 2, Tickets: true}, disk)
		acked := func(fx *Effects) []uint64 {
			var seqs []uint64
			for _, l := range fx.Letters {
				if l.Ack != nil && l.To == 2 {
					seqs = append(seqs, l.Ack.Seq)
				}
			}
			return seqs
		}
		push := func(push *replication.Push) []uint64 {
			fx, err := p.Take(0, 2, &Letter{Push: push})
			if err != nil || !fx.Moved { // Moved lets the disk be written
				t.Fatalf("%+v, %v", fx, err)
			}
			return acked(fx)
		}
		first := push(&replication.Push{Seq: 1, Owner: 2, Delta: replication.NewTable(2).Since(0)})
		received := p.Tickets().Received()
		second := push(&replication.Push{Seq: 2, Owner: 2, Retire: true})
		got := [][]uint64{first, second, acked(p.Written(0, 1, received)), acked(p.Written(0, 1, p.Tickets().Received()))}
		want := [][]uint64{{1}, {2}, nil, nil} // at once
		if disk == DiskRead {
			want = [][]uint64{nil, nil, {1}, {2}} // when they are written
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("disk %d: acknowledged %v, want %v", disk, got, want)
		}
		push(&replication.Push{Seq: 3, Owner: 2, Delta: replication.NewTable(2).Since(0)})
		if early, late := acked(p.Wake(writeWithin-1)), acked(p.Wake(writeWithin)); disk == DiskRead && (len(early) > 0 || !slices.Equal(late, []uint64{3})) {
			t.Errorf("its disk hangs: acknowledged %v, and %v after %v", early, late, writeWithin)
		}
	}
}

// A gateway that comes back keeps no replicas of those who may have gone on without it.
func TestDropsWhatItMissed(t *testing.T) {
	memory := new(Memory)
	for _, owner := range []kmutex.Node{2, 3} {
		if err := memory.Replicas().Restore(replication.NewTable(owner).Since(0)); err != nil {
			t.Fatal(err)
		}
	}
	p := New(Config{Self: 5, Binding: new(coordinator.Late), Memory: memory, Interval: func() time.Duration { return time.Second }})
	p.Follow(0, View{
		Members: []kmutex.Node{2, 5}, Newest: 5, K: 1, Epoch: 1, Began: 5, Home: 2, Tickets: true, Gone: []kmutex.Node{3},
		Missed: func(owner kmutex.Node, _ func(kmutex.Node) bool) bool { return owner == 2 },
	}, DiskRead)
	if got := memory.Replicas().Owners(); !slices.Equal(got, []kmutex.Node{3}) {
		t.Errorf("replicas of %v, want those of node 3", got)
	}
}

// A lost gateway of which its successor must have had copies, and has none, has told nobody
// of a ticket: nothing is withheld for tickets.
func TestLostWithoutTickets(t *testing.T) {
	for _, witnessed := range []bool{true, false} {
		w := newTrio(t, 2)
		w.view.Epoch, w.view.Newest, w.view.Gone = 2, 9, []kmutex.Node{9}
		w.view.Lost = []replication.Lost{{Node: 9, Successor: 3}}
		w.view.Witnessed = func(kmutex.Node) bool { return witnessed }
		unknown := false
		for _, n := range w.view.Members {
			w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
		}
		for len(w.mail) > 0 {
			s := w.mail[0]
			w.mail = w.mail[1:]
			fx, err := w.pools[s.letter.To].Take(w.now, s.from, &s.letter)
			if err != nil {
				t.Fatal(err)
			}
			unknown = unknown || len(fx.Unknown) > 0
			w.carry(s.letter.To, fx)
		}
		w.states(Installed, Installed, Installed)
		if unknown == witnessed || w.pools[3].Tickets().Absorbed(9) != witnessed {
			t.Errorf("witnessed: %t, unknown: %t, taken over: %t", witnessed, unknown, w.pools[3].Tickets().Absorbed(9))
		}
	}
}

// Home finds a token that is lost or in use twice after three counts, also while
// others are withheld, and asks for an epoch that mends it.
func TestAudit(t *testing.T) {
	w := newTrio(t, 2)
	w.wake(time.Minute)
	w.deliver(nil)
	if len(w.asked) > 0 {
		t.Fatal("a fault was found where there is none")
	}
	lie := func(s sent) bool {
		if h := s.letter.Tokens; h != nil && s.from == 2 {
			h.Running = []kmutex.Grant{{Request: 1, Token: 0}}
		}
		if h := s.letter.Tokens; h != nil && s.from == 3 {
			h.Running = []kmutex.Grant{{Request: 2, Token: 0}}
		}
		return true
	}
	for range 60 {
		w.wake(100 * time.Millisecond)
		w.deliver(lie)
	}
	w.wake(2 * auditEvery)
	if len(w.asked) == 0 {
		t.Error("a doubled token was not found")
	}
}

// Home has free tokens spread when one gateway keeps most of them, but not while they
// are used, not where they are spread already, and not twice within spreadEvery.
func TestSpread(t *testing.T) {
	w := newTrio(t, 6)
	answer := func(here, used int) func(sent) bool {
		return func(s sent) bool {
			if h := s.letter.Tokens; h != nil && here > 0 {
				h.Free, h.Used = nil, kmutex.NewTokenSet(used)
				if s.from == 2 {
					h.Free = kmutex.NewTokenSet(here)
				}
			}
			return true
		}
	}
	run := func(d time.Duration, keep func(sent) bool) int {
		before := len(w.asked)
		for end := w.now + d; w.now < end; {
			w.wake(100 * time.Millisecond)
			w.deliver(keep)
		}
		return len(w.asked) - before
	}
	if got := run(time.Minute, nil); got != 0 {
		t.Fatalf("asked %d times for an epoch with tokens that are spread", got)
	}
	if got := run(2*auditEvery, answer(6, 2)); got != 0 {
		t.Errorf("asked %d times for an epoch while the tokens are used", got)
	}
	if got := run(auditEvery+time.Second, answer(6, 1)); got != 1 {
		t.Errorf("asked %d times to spread the tokens of one gateway, want once", got)
	}
	for _, n := range w.view.Members {
		w.next(n, DiskNone)
	}
	w.deliver(nil)
	w.view.Epoch++
	if got := run(5*time.Second, answer(6, 0)); got != 0 {
		t.Errorf("asked %d times to spread tokens again, too early", got)
	}
	if got := run(2*auditEvery, answer(6, 0)); got != 1 {
		t.Errorf("asked %d times to spread tokens after a second burst, want once", got)
	}
}

func TestLopsided(t *testing.T) {
	free := kmutex.NewTokenSet
	at := func(sets ...kmutex.TokenSet) map[kmutex.Node]*Holdings {
		all := make(map[kmutex.Node]*Holdings)
		for i, set := range sets {
			all[kmutex.Node(i+1)] = &Holdings{Free: set}
		}
		return all
	}
	busy := at(free(4), nil, nil)
	busy[2].Running = []kmutex.Grant{{Request: 1, Token: 4}}
	busy[3].Running = []kmutex.Grant{{Request: 2, Token: 5}}
	for name, c := range map[string]struct {
		all  map[kmutex.Node]*Holdings
		want bool
	}{
		"all at one of two":               {at(free(2), nil), true},
		"all at one of three":             {at(free(16), nil, nil), true},
		"most, and the others have some":  {at(free(12), free(2), free(2)), false},
		"two shares, and one has nothing": {at(free(4), free(2), nil), true},
		"even":                            {at(free(2), free(2), free(2)), false},
		"fewer than gateways, one each":   {at(free(1), free(1), nil), false},
		"fewer than gateways, two at one": {at(free(2), nil, nil), true},
		"the only one":                    {at(free(1), nil, nil), false},
		"the only gateway":                {at(free(4)), false},
		"the others' tokens are in use":   {busy, false},
		"none, all are withheld, say":     {at(nil, nil, nil), false},
	} {
		if got := lopsided(c.all); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A fault counts when three counts in a row find the same one.
func TestStrikes(t *testing.T) {
	free := kmutex.NewTokenSet
	whole := []*Holdings{{Free: free(2)}, {Running: []kmutex.Grant{{Request: 5, Token: 2}}}}
	without := []*Holdings{{Free: free(2)}, {}}
	moving := []*Holdings{{Free: free(2)}, {Used: free(3)}}
	doubled := []*Holdings{
		{Free: free(1), Running: []kmutex.Grant{{Request: 5, Token: 1}}},
		{Running: []kmutex.Grant{{Request: 7, Token: 1}, {Request: 8, Token: 2}}},
	}
	withheld := kmutex.TokenSet{}
	withheld.Add(2)
	for _, c := range []struct {
		name     string
		withheld kmutex.TokenSet
		counts   [][]*Holdings
		want     []kmutex.Token
	}{
		{"whole", nil, [][]*Holdings{whole, whole, whole, whole}, nil},
		{"on its way now and then", nil, [][]*Holdings{without, without, whole, without, without}, nil},
		{"on its way at each count, and used in between", nil, [][]*Holdings{moving, moving, moving, moving}, nil},
		{"lost", nil, [][]*Holdings{whole, without, without, without}, []kmutex.Token{2}},
		{"withheld on purpose", withheld, [][]*Holdings{without, without, without}, nil},
		{"lost, while another is withheld", withheld, [][]*Holdings{{{Free: free(1)}}, {{Free: free(1)}}, {{Free: free(1)}}}, []kmutex.Token{1}},
		{"doubled", nil, [][]*Holdings{doubled, doubled, doubled}, []kmutex.Token{1}},
		{"doubled, while another is withheld", withheld, [][]*Holdings{doubled, doubled, doubled}, []kmutex.Token{1}},
	} {
		var a audit
		var got []kmutex.Token
		for _, all := range c.counts {
			got = a.strike(expected(&kmutex.Install{K: 3, Tokens: free(3), Withheld: c.withheld}), all)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
