package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// adopted has gateway 3 take over a granted ticket of a lost one. By the wall clock
// of that one its hold ends after left; the wall clock of gateway 3 is ahead.
func adopted(t *testing.T, r replication.Record, left, ahead time.Duration) (*trio, *Ticket) {
	t.Helper()
	const lost, wall = 9, int64(1_800_000_000_000_000_000)
	w := newTrio(t, 2)
	w.pools[3].cfg.Wall = func() int64 { return wall + int64(ahead) }
	// The tokens leave home with the baton, and are never seen again.
	ask := kmutex.Message{Kind: kmutex.KindRequest, Epoch: 1, Origin: 2}
	if _, err := w.pools[1].Step(0, &kmutex.Event{Kind: kmutex.EventReceive, From: 2, Message: &ask}); err != nil {
		t.Fatal(err)
	}
	table := replication.NewTable(lost)
	r.ID, r.Stamp, r.State, r.Fence = replication.NewID([16]byte{1}, lost), wall, admission.TicketGranted, replication.Fence{Epoch: 1, Serial: 1}
	if r.HoldMax > 0 {
		r.Ends = wall + int64(left)
	}
	if _, err := table.Put(r); err != nil {
		t.Fatal(err)
	}
	if err := w.pools[3].cfg.Memory.Replicas().Restore(table.Since(0)); err != nil {
		t.Fatal(err)
	}
	w.view.Epoch, w.view.Newest, w.view.Wait = 2, lost, 3300*time.Millisecond
	w.view.Lost, w.view.Gone = []replication.Lost{{Node: lost, Successor: 3}}, []kmutex.Node{lost}
	for _, n := range w.view.Members {
		w.carry(n, w.pools[n].Follow(w.now, w.view, DiskNone))
	}
	w.deliver(nil)
	tk := w.pools[3].Tickets().Get(r.ID)
	if tk == nil {
		t.Fatal("the ticket has not been taken over")
	}
	return w, tk
}

// lasts returns how long gateway 3 keeps the ticket, whose holder gives signs.
func (w *trio) lasts(tk *Ticket) time.Duration {
	p, began := w.pools[3], w.now
	for ; p.Tickets().Get(tk.ID) != nil && w.now-began < time.Hour; w.now += 50 * time.Millisecond {
		p.Sign(w.now, tk)
		p.Wake(w.now)
	}
	return w.now - began
}

// The end of a hold that a successor takes over lies between what the lost gateway may have
// promised and a whole hold, whatever the wall clocks show; in between they tell. The
// next successor reads this one's.
func TestHoldAtTheSuccessor(t *testing.T) {
	const wait = 3300 * time.Millisecond
	for _, c := range []struct {
		ttl, holdMax, left, ahead, want time.Duration
	}{
		{10 * time.Second, time.Minute, 40 * time.Second, 0, 40 * time.Second},
		{10 * time.Second, time.Minute, 40 * time.Second, 10 * time.Minute, wait + 11150*time.Millisecond},
		{10 * time.Second, time.Minute, 40 * time.Second, -10 * time.Minute, wait + time.Minute},
		{time.Minute, 10 * time.Second, 5 * time.Second, 10 * time.Minute, wait + 11150*time.Millisecond},
		{time.Minute, 10 * time.Second, 5 * time.Second, -10 * time.Minute, wait + 11150*time.Millisecond},
	} {
		w, tk := adopted(t, replication.Record{TTL: c.ttl, HoldMax: c.holdMax}, c.left, c.ahead)
		r, _ := w.pools[3].Tickets().Table().Get(tk.ID)
		if told := time.Duration(r.Ends - w.pools[3].cfg.Wall()); told != c.want {
			t.Errorf("%+v: the next successor is told that it ends after %v", c, told)
		}
		if got := w.lasts(tk); got < c.want || got > c.want+100*time.Millisecond {
			t.Errorf("%+v: the hold ends after %v", c, got)
		}
	}
}

// A successor keeps a ticket without a sign of its holder until the holder must have
// stopped, also if it renewed at the lost gateway as long as that one could go on, with
// a clock a tenth slow.
func TestSuccessorKeepsTheSlot(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, time.Minute, admission.MaxTTL} {
		w, tk := adopted(t, replication.Record{TTL: ttl}, 0, 0)
		began := w.now
		for ; w.pools[3].Tickets().Get(tk.ID) != nil && w.now-began < time.Hour; w.now += 50 * time.Millisecond {
			w.pools[3].Wake(w.now)
		}
		// All by a clock that is a tenth fast.
		if got := w.now - began; got < w.view.Wait+ttl*11/10+100*time.Millisecond || got > w.view.Wait+ttl*11/10+time.Second {
			t.Errorf("ttl %v: kept for %v", ttl, got)
		}
	}
}

// A ticket that is granted while its holder waits for it has its whole time to live.
func TestGrantedWhileAwaited(t *testing.T) {
	const ttl = 10 * time.Second
	w := newTrio(t, 2)
	p := w.pools[2]
	tk := &Ticket{ID: replication.NewID([16]byte{1}, 2), TTL: ttl}
	p.Keep(w.now, tk)
	p.Await(w.now, tk, 1)
	w.now += ttl
	p.TicketGranted(w.now, 1, tk, kmutex.Grant{Request: 1, Serial: 1})
	if left := tk.Left(w.now); left != ttl {
		t.Errorf("%v is left", left)
	}
}

// A gateway that is about to leave in order writes down what its tickets have left, and
// each sign after that. Its successor counts from there, once.
func TestHandedOver(t *testing.T) {
	const ttl, holdMax = 10 * time.Second, time.Minute
	w := newTrio(t, 2)
	p := w.pools[2]
	p.cfg.Wall = func() int64 { return 1 }
	tk := &Ticket{ID: replication.NewID([16]byte{1}, 2), TTL: ttl, HoldMax: holdMax}
	p.Keep(w.now, tk)
	p.TicketGranted(w.now, 1, tk, kmutex.Grant{Request: 1, Serial: 1})
	left := func() (ttl, hold time.Duration) {
		r, _ := p.Tickets().Table().Get(tk.ID)
		return r.Left, r.HoldLeft
	}
	if a, b := left(); a != 0 || b != 0 {
		t.Errorf("%v and %v are left at a gateway that stays", a, b)
	}
	polled := &Ticket{ID: replication.NewID([16]byte{2}, 2), TTL: ttl}
	p.Keep(w.now, polled)
	p.Await(w.now, polled, 1)
	w.now += 6 * time.Second
	p.HandOver(w.now)
	if r, _ := p.Tickets().Table().Get(polled.ID); r.Left != KeepFor(ttl) {
		t.Errorf("%v are left of a ticket whose holder waits for it here", r.Left)
	}
	if a, b := left(); a != KeepFor(ttl)-6*time.Second || b != holdMax-6*time.Second {
		t.Errorf("%v and %v are left", a, b)
	}
	w.now += time.Second
	p.Sign(w.now, tk)
	if a, b := left(); a != KeepFor(ttl) || b != holdMax-7*time.Second {
		t.Errorf("%v and %v are left after the sign", a, b)
	}
	for _, c := range []struct {
		left, holdLeft, idle, renewed time.Duration
	}{
		{3 * time.Second, 40 * time.Second, 3 * time.Second, 40 * time.Second},
		// No gateway that works says that more is left than a whole one.
		{time.Hour, time.Hour, 3300*time.Millisecond + KeepFor(ttl), 3300*time.Millisecond + holdMax},
	} {
		r := replication.Record{TTL: ttl, HoldMax: holdMax, Left: c.left, HoldLeft: c.holdLeft}
		w, tk := adopted(t, r, 20*time.Second, time.Hour)
		if got := tk.Expires - w.now; got != c.idle {
			t.Errorf("%+v: ends after %v", c, got)
		}
		if got := w.lasts(tk); got < c.renewed || got > c.renewed+100*time.Millisecond {
			t.Errorf("%+v: the hold ends after %v", c, got)
		}
	}
}

// A successor records what is left of a ticket every second, as long as its holder gives no sign.
// Nobody is told of the first sign before the record has it; then the next successor gives it a
// whole time to live again. The end of a hold stays recorded.
func TestSuccessorCountsOn(t *testing.T) {
	const ttl, holdMax = 10 * time.Second, time.Minute
	w, tk := adopted(t, replication.Record{TTL: ttl, HoldMax: holdMax}, holdMax/2, 0)
	p, first := w.pools[3], w.view.Wait+KeepFor(ttl)
	v := w.view
	v.Successors = []kmutex.Node{2}
	w.carry(3, p.Follow(w.now, v, DiskNone))
	record := func() replication.Record {
		w.deliver(nil)
		r, _ := p.Tickets().Table().Get(tk.ID)
		return r
	}
	for n := range 5 * time.Second / noteEvery {
		if r := record(); r.Left != first-n*noteEvery || r.HoldLeft != holdMax/2-n*noteEvery {
			t.Errorf("after %v, %v and %v are left in the record", n*noteEvery, r.Left, r.HoldLeft)
		}
		w.now += noteEvery
		w.carry(3, p.Wake(w.now))
	}
	w.carry(3, p.Sign(w.now, tk))
	if p.Tickets().Synced(tk) {
		t.Error("the holder is told that its sign counts, and no successor knows of it")
	}
	if r := record(); r.Left != 0 || !p.Tickets().Synced(tk) {
		t.Errorf("after the first sign %v are left in the record", r.Left)
	}
	w.now += noteEvery
	w.carry(3, p.Wake(w.now))
	if !p.Tickets().Synced(tk) {
		t.Error("its holder waits until the successors have what is left of the hold, again every second")
	}
	if r := record(); r.Left != 0 || r.HoldLeft > holdMax/2-6*noteEvery {
		t.Errorf("a second later %v and %v are left in the record", r.Left, r.HoldLeft)
	}
}

// A call whose answer was lost may use the ticket again, also at the successor. No other
// may, nor one that has no name. Nobody else ends the ticket.
func TestUseAgain(t *testing.T) {
	w, tk := adopted(t, replication.Record{TTL: time.Minute}, 0, 0)
	p := w.pools[3]
	use := func(call string) error {
		_, err := p.Use(w.now, tk, call)
		return err
	}
	if err := use("one"); err != nil {
		t.Fatal(err)
	}
	if err := use("one"); err != nil {
		t.Errorf("again: %v", err)
	}
	for _, call := range []string{"two", ""} {
		if err := use(call); err == nil {
			t.Errorf("call %q uses it, too", call)
		}
		// Its end would give away the slot that the request still uses.
		if _, err := p.Finish(w.now, tk, call); !errors.Is(err, admission.ErrTicketUsed) {
			t.Errorf("call %q ends it: %v", call, err)
		}
	}
	if _, err := p.Finish(w.now, tk, "one"); err != nil {
		t.Errorf("who uses it cannot end it: %v", err)
	}
	w, tk = adopted(t, replication.Record{TTL: time.Minute, Used: true, UsedBy: "one"}, 0, 0)
	p = w.pools[3]
	if err := use("two"); !errors.Is(err, admission.ErrTicketUsed) {
		t.Errorf("another call at the successor: %v", err)
	}
	if err := use("one"); err != nil {
		t.Errorf("at the successor: %v", err)
	}
	w, tk = adopted(t, replication.Record{TTL: time.Minute, Used: true}, 0, 0)
	p = w.pools[3]
	if err := use("one"); !errors.Is(err, admission.ErrTicketUsed) {
		t.Errorf("one without a name has used it: %v", err)
	}
	if _, err := p.Finish(w.now, tk, ""); !errors.Is(err, admission.ErrTicketUsed) {
		t.Errorf("one without a name uses it, and its holder ends it: %v", err)
	}
}
