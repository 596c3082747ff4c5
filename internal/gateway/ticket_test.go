package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

func request(t *testing.T, n *node, ttl time.Duration) admission.Ticket {
	t.Helper()
	tk, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool}, ttl, "")
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

func test(t *testing.T, n *node, id string) admission.Ticket {
	t.Helper()
	tk, err := n.TestTicket(t.Context(), id, false, 0)
	if err != nil {
		t.Fatalf("ticket %s: %v", id, err)
	}
	return tk
}

// The cycle of a ticket, asked for at another gateway than the one that took it.
func TestTicketCycle(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 1, binding, time.Millisecond, PoolConfig{})
		all := f.all()
		first := request(t, all[0], time.Minute)
		if first = test(t, all[1], first.ID); !first.Granted || first.Fence == "" {
			t.Errorf("first ticket: %+v", first)
		}
		second := request(t, all[1], time.Minute)
		time.Sleep(time.Millisecond)
		third := request(t, all[2], time.Minute)
		time.Sleep(2 * positionsKeep)
		if second.Granted || test(t, all[0], second.ID).Position != 1 || test(t, all[0], third.ID).Position != 2 {
			t.Errorf("second %+v, third %+v", second, test(t, all[0], third.ID))
		}
		got := make(chan admission.Ticket)
		go func() {
			tk, err := all[2].TestTicket(t.Context(), second.ID, false, time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- tk
		}()
		time.Sleep(time.Second)
		if err := all[2].EndTicket(t.Context(), first.ID); err != nil {
			t.Error(err)
		}
		if tk := <-got; !tk.Granted || tk.Fence <= first.Fence {
			t.Errorf("second ticket: %+v after %+v", tk, first)
		}
		if _, err := all[1].RenewTicket(t.Context(), first.ID); !ended(err, admission.EndReleased) {
			t.Errorf("a released ticket: %v", err)
		}
		if err := all[0].EndTicket(t.Context(), third.ID); err != nil {
			t.Error(err)
		}
		if _, err := all[1].TestTicket(t.Context(), third.ID, false, 0); !ended(err, admission.EndCancelled) {
			t.Errorf("a cancelled ticket: %v", err)
		}
		for range 4 { // a sign now and then keeps it
			time.Sleep(50 * time.Second)
			if _, err := all[0].RenewTicket(t.Context(), second.ID); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(67 * time.Second)
		if _, err := all[1].RenewTicket(t.Context(), second.ID); !ended(err, admission.EndExpired) {
			t.Errorf("an expired ticket: %v", err)
		}
		for _, id := range []string{"nonsense", "aaaaaaaaaaaaaaaaaaaaaaaaaa-1", "aaaaaaaaaaaaaaaaaaaaaaaaaa-zzz"} {
			if _, err := all[1].TestTicket(t.Context(), id, false, 0); err == nil || errors.Is(err, admission.Isolated) {
				t.Errorf("ticket %s: %v", id, err)
			}
		}
		f.check()
	})
}

// TestClientLeavesBeforeItsTicket: a ticket whose client has left before it was told of it
// holds no slot.
func TestClientLeavesBeforeItsTicket(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		f := newFleet(t, 3, 1, binding, time.Millisecond, PoolConfig{})
		all := f.all()
		test(t, all[0], request(t, all[0], 2*time.Second).ID)
		time.Sleep(3 * time.Second)
		for _, n := range all[1:] {
			n.isolate(time.Minute) // no successor answers
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if tk, err := all[0].RequestTicket(ctx, admission.Request{Pool: testPool}, time.Minute, ""); err == nil {
			t.Fatalf("the client is told of %+v", tk)
		}
		for _, n := range all[1:] {
			n.uncut()
		}
		next := request(t, all[0], time.Minute)
		time.Sleep(time.Second)
		if next = test(t, all[0], next.ID); !next.Granted {
			t.Errorf("the next ticket waits: %+v", next)
		}
	})
}

// The gateways agree on how long a pool's tickets may live before one is taken that lives so long.
func TestTicketTTLIsAgreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 4, admission.BindingLate, time.Millisecond, PoolConfig{})
		for _, c := range []struct{ ttl, agreed time.Duration }{
			{5 * time.Second, 10 * time.Second}, {time.Minute, time.Minute}, {2 * time.Second, time.Minute}, {61 * time.Second, 2 * time.Minute},
		} {
			request(t, f.all()[1], c.ttl)
			for i, n := range f.all() {
				if got := n.View().Pools[0].TicketTTL; got != c.agreed {
					t.Errorf("a ticket lives %v, gateway %d has %v agreed, want %v", c.ttl, i, got, c.agreed)
				}
			}
		}
	})
}

// No ticket lives longer than the pool's configuration says: so long at most are tokens withheld for
// tickets that nobody knows. One that would is refused, and nothing is agreed for it.
func TestTicketTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 4, admission.BindingLate, time.Millisecond, PoolConfig{TicketTTL: 20 * time.Second})
		n := f.all()[1]
		ask := func(ttl time.Duration) error {
			_, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool}, ttl, "")
			return err
		}
		if err := ask(21 * time.Second); !errors.Is(err, admission.ErrTTL) || !strings.Contains(err.Error(), "more than the 20s") {
			t.Errorf("one second too long: %v", err)
		}
		if agreed := n.View().Pools[0]; agreed.Tickets != 0 || agreed.TicketTTL != 0 {
			t.Errorf("agreed: %+v", agreed)
		}
		if err := ask(20 * time.Second); err != nil {
			t.Error(err)
		}
		n.Configure(nil)
		if err := ask(admission.DefaultTicketTTL); err != nil {
			t.Error(err)
		}
		if err := ask(admission.DefaultTicketTTL + 1); !errors.Is(err, admission.ErrTTL) {
			t.Errorf("without a configuration: %v", err)
		}
	})
}

// Who wants a pool's first ticket learns that nobody agrees when the lease has run out.
func TestFirstTicketWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 4, admission.BindingLate, time.Millisecond, PoolConfig{})
		n, began := f.all()[1], time.Now()
		n.isolate(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := n.RequestTicket(ctx, admission.Request{Pool: testPool}, time.Minute, "")
		if took := time.Since(began); !errors.Is(err, admission.Isolated) || took > 4*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// When the end of a ticket is answered, no successor has it any more. One that does not
// answer holds nobody up.
func TestTicketEndsAtItsSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		all := f.all()
		for _, cut := range []bool{false, true} {
			id := test(t, all[0], request(t, all[0], time.Minute).ID).ID
			if cut {
				all[1].isolate(time.Minute)
			}
			began := time.Now()
			if err := all[0].EndTicket(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); cut != (took > 500*time.Millisecond) || took > 2*time.Second {
				t.Errorf("a successor is cut off: %t; the answer takes %v", cut, took)
			}
			for i, n := range all[1:] {
				p := n.pool(testPool)
				p.mu.Lock()
				left := len(p.tickets().Replicas().Of(all[0].self).Records())
				p.mu.Unlock()
				if left > 0 && !cut {
					t.Errorf("gateway %d still has %d tickets of the first", i+1, left)
				}
			}
		}
	})
}

func ended(err error, how admission.Ending) bool {
	var e *admission.EndedError
	return errors.As(err, &e) && e.How == how
}

// Tickets keep their places, and granted ones their slots, when the gateway that
// took them is lost; also when its heir goes with it, or a moment later.
func TestTicketsOutliveTheirGateway(t *testing.T) {
	for _, together := range []bool{true, false} {
		bindings(t, func(t *testing.T, binding admission.Binding) {
			const k = 4
			f := newFleet(t, 5, k, binding, time.Millisecond, PoolConfig{})
			f.heirs = true
			var ids []string
			all := f.all()
			for i := range 40 {
				ids = append(ids, request(t, all[i%5], 10*time.Minute).ID)
				time.Sleep(50 * time.Millisecond)
			}
			granted := map[string]bool{}
			for i, id := range ids {
				granted[id] = test(t, all[0], id).Granted
				if binding == admission.BindingLate && granted[id] != (i < k) {
					t.Fatalf("ticket %d granted: %t", i, granted[id])
				}
			}
			// Two neighbours on the ring.
			names := f.view.Ring().Names()
			one, two := f.named(names[0]), f.named(names[1])
			one.isolate(3 * time.Second)
			if together {
				two.isolate(3 * time.Second)
			}
			f.suspend(one.self, f.homeBut(one, two))
			if !together {
				time.Sleep(time.Second)
				two.isolate(3 * time.Second)
			}
			f.suspend(two.self, f.homeBut(one, two))
			rest := slices.DeleteFunc(f.all(), func(n *node) bool { return n == one || n == two || n.self == 0 })
			time.Sleep(time.Second)
			for i, id := range ids {
				if tk := test(t, rest[i%len(rest)], id); tk.Granted != granted[id] {
					t.Errorf("ticket %d: %+v", i, tk)
				}
			}
			time.Sleep(3 * time.Second)
			f.expire()
			inversions := 0
			left := slices.Clone(ids)
			for len(left) > 0 {
				var now []int
				for i, id := range left {
					if test(t, rest[0], id).Granted {
						now = append(now, i)
					}
				}
				if len(now) != min(k, len(left)) && binding == admission.BindingLate || len(now) == 0 || len(now) > k {
					t.Fatalf("%d of %d granted, k=%d", len(now), len(left), k)
				}
				for n, i := range now {
					if i != n {
						inversions++
					}
				}
				if err := rest[len(left)%len(rest)].EndTicket(t.Context(), left[now[0]]); err != nil {
					t.Error(err)
				}
				left = slices.Delete(left, now[0], now[0]+1)
				time.Sleep(100 * time.Millisecond)
			}
			if inversions > 0 && binding == admission.BindingLate {
				t.Errorf("%d inversions", inversions)
			}
			f.check()
		})
	}
}

// A gateway that leaves in order hands its tickets on.
func TestTicketsOfOneThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 2, admission.BindingLate, time.Millisecond, PoolConfig{})
		f.heirs = true
		n := f.gateways[2]
		ids := []string{request(t, n, time.Minute).ID, request(t, n, time.Minute).ID, request(t, n, time.Minute).ID}
		time.Sleep(time.Second)
		if err := n.Drain(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		f.leave(2, 1)
		time.Sleep(time.Second)
		for i, id := range ids {
			if tk := test(t, f.gateways[3], id); tk.Granted != (i < 2) {
				t.Errorf("ticket %d: %+v", i, tk)
			}
		}
		for _, id := range ids {
			if err := f.gateways[1].EndTicket(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		f.check()
	})
}

// A ticket's times go on counting when its gateway leaves in order, however often, and
// whatever the wall clocks show. What a gateway promises after it has handed over holds, too.
func TestTicketOutlivesNoRestart(t *testing.T) {
	const ttl, holdMax = 6 * time.Second, 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 3, admission.BindingLate, time.Millisecond, PoolConfig{})
		f.heirs = true
		some := func() *node { return f.all()[0] }
		restart := func(before func(*node)) {
			old := f.gateways[slices.Max(f.members())]
			if err := old.Drain(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if err := old.HandOverTickets(t.Context()); err != nil {
				t.Fatal(err)
			}
			before(old)
			n := f.join()
			n.wall = func() time.Time { return time.Now().Add(time.Duration(n.self) * time.Hour) }
			f.leave(old.self, 1)
			time.Sleep(100 * time.Millisecond)
		}
		last := f.gateways[3]
		abandoned := request(t, last, ttl)
		bounded, err := last.RequestTicket(t.Context(), admission.Request{Pool: testPool, HoldMax: holdMax}, ttl, "")
		if err != nil {
			t.Fatal(err)
		}
		began, gone, over := time.Now(), time.Duration(0), time.Duration(0)
		for n := 0; (gone == 0 || over == 0) && n < 1000; n++ {
			if _, err := some().TestTicket(t.Context(), abandoned.ID, true, 0); ended(err, admission.EndExpired) && gone == 0 {
				gone = time.Since(began)
			}
			if _, err := some().RenewTicket(t.Context(), bounded.ID); ended(err, admission.EndHoldMax) {
				over = time.Since(began)
			}
			if time.Sleep(100 * time.Millisecond); n%20 == 19 {
				restart(func(*node) {})
			}
		}
		if gone < ttl || gone > pool.KeepFor(ttl)+time.Second {
			t.Errorf("an abandoned ticket with a time to live of %v ended after %v", ttl, gone)
		}
		if over < holdMax-time.Second || over > holdMax+time.Second {
			t.Errorf("a hold of %v ended after %v", holdMax, over)
		}

		last = f.gateways[slices.Max(f.members())]
		renewed := request(t, last, ttl)
		time.Sleep(3 * time.Second)
		restart(func(old *node) {
			time.Sleep(3 * time.Second)
			if _, err := old.RenewTicket(t.Context(), renewed.ID); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(ttl - time.Second)
		if _, err := some().RenewTicket(t.Context(), renewed.ID); err != nil {
			t.Errorf("within what the gateway that left had promised: %v", err)
		}
		time.Sleep(2 * ttl)
		f.check()
	})
}

// named returns the gateway of that name in the view.
func (f *fleet) named(name string) *node {
	m, _ := f.view.Named(name)
	return f.gateways[m.Node]
}

// homeBut returns a member that is none of these.
func (f *fleet) homeBut(not ...*node) kmutex.Node {
	for _, m := range f.view.Members {
		if !slices.Contains(not, f.gateways[m.Node]) {
			return m.Node
		}
	}
	panic(fmt.Sprint("nobody left but ", not))
}

// TestNotReadIsNotUnknown: a gateway that has a part in the pool again, but not its tickets
// yet, does not say of them that nobody knows them.
func TestNotReadIsNotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		n := f.all()[0]
		tk := request(t, n, time.Minute)
		p := n.tickets.all()[0]
		p.mu.Lock()
		read := p.core
		p.core = pool.New(pool.Config{Self: n.self, Binding: newBinding(admission.BindingLate)})
		p.mu.Unlock()
		for _, id := range []string{tk.ID, tk.ID + "0"} {
			if _, err := n.tickets.here(t.Context(), n.self, ticketCall{Op: opTest, ID: id}); !errors.Is(err, admission.ErrElsewhere) {
				t.Errorf("ticket %s before the tickets are read: %v", id, err)
			}
		}
		p.mu.Lock()
		p.core = read
		p.mu.Unlock()
		n.tickets.mu.Lock()
		delete(n.tickets.drivers, p.name)
		n.tickets.mu.Unlock()
		if _, err := n.tickets.here(t.Context(), n.self, ticketCall{Op: opTest, ID: tk.ID}); !errors.Is(err, admission.ErrElsewhere) {
			t.Errorf("the ticket before this gateway has a part in the pool: %v", err)
		}
		n.tickets.mu.Lock()
		n.tickets.drivers[p.name] = p
		n.tickets.mu.Unlock()
		if tk := test(t, n, tk.ID); !tk.Granted {
			t.Errorf("afterwards: %+v", tk)
		}
		if _, err := n.tickets.here(t.Context(), n.self, ticketCall{Op: opTest, ID: tk.ID + "0"}); !errors.Is(err, admission.ErrUnknownTicket) {
			t.Errorf("another ticket: %v", err)
		}
		time.Sleep(2 * time.Minute) // the ticket expires
		f.check()
	})
}

// One request has the slot of a granted ticket, and nobody else; it ends with it.
func TestRedeem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		here, there := f.gateways[1], f.gateways[2]
		first, second := request(t, here, 10*time.Second), request(t, here, 10*time.Second)
		if _, err := there.redeem(t.Context(), testPool, second.ID, nil); !errors.Is(err, admission.ErrTicketWaiting) {
			t.Errorf("waiting: %v", err)
		}
		if _, err := there.redeem(t.Context(), "other", first.ID, nil); !errors.Is(err, admission.ErrUnknownTicket) {
			t.Errorf("of another pool: %v", err)
		}
		r, err := there.redeem(t.Context(), testPool, first.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := here.redeem(t.Context(), testPool, first.ID, nil); !errors.Is(err, admission.ErrTicketUsed) {
			t.Errorf("used: %v", err)
		}
		for range 6 {
			time.Sleep(9 * time.Second)
			if _, err := here.TestTicket(t.Context(), second.ID, false, 0); err != nil {
				t.Error(err)
			}
		}
		if !r.Valid() || r.Fence() == "" {
			t.Error("not valid although it is renewed")
		}
		r.Release()
		r.Release()
		if tk, err := there.TestTicket(t.Context(), second.ID, false, time.Minute); err != nil || !tk.Granted {
			t.Errorf("next: %+v %v", tk, err)
		}
		// A slot whose ticket cannot be renewed is lost before it can be given to
		// somebody else.
		lost := make(chan time.Time, 1)
		r, err = there.redeem(t.Context(), testPool, second.ID, func() { lost <- time.Now() })
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f.mu.Lock()
		there.cut = true // but its lease goes on
		f.mu.Unlock()
		if at := <-lost; at.Sub(began) >= 10*time.Second {
			t.Errorf("lost after %v, when the ticket had expired", at.Sub(began))
		}
		if r.Valid() {
			t.Error("valid although it is lost")
		}
		time.Sleep(3 * time.Second)
		// It has expired here. Were this gateway the one that is cut off, its successor could know better.
		if _, err := here.RenewTicket(t.Context(), second.ID); !errors.Is(err, admission.ErrElsewhere) {
			t.Errorf("a ticket that nobody could renew: %v", err)
		}
		if third, err := here.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, ""); !errors.Is(err, admission.ErrElsewhere) {
			t.Errorf("with a successor that does not answer: %+v %v", third, err)
		}
		r.Release()
		f.mu.Lock()
		there.cut = false
		f.mu.Unlock()
		time.Sleep(2 * time.Minute) // the third ticket expires
		f.check()
	})
}

// A ticket whose hold is bounded gives its slot back in time, however often it is
// renewed, at its heir, too; a request on it is aborted before.
func TestTicketHoldMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holdMax = 30 * time.Second
		f := newFleet(t, 3, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		f.heirs = true
		owner, other := f.gateways[2], f.gateways[3]
		ask := admission.Request{Pool: testPool, HoldMax: holdMax}
		take := func(n *node) admission.Ticket {
			tk, err := n.RequestTicket(t.Context(), ask, 10*time.Second, "")
			if err != nil {
				t.Fatal(err)
			}
			return tk
		}
		// held renews id, every second, until it has ended.
		held := func(n *node, id string) time.Duration {
			began := time.Now()
			for {
				if _, err := n.RenewTicket(t.Context(), id); err != nil {
					if !ended(err, admission.EndHoldMax) {
						t.Error(err)
					}
					return time.Since(began)
				}
				time.Sleep(time.Second)
			}
		}
		first := take(owner)
		if got := held(other, first.ID); got < holdMax-time.Second || got > holdMax+time.Second {
			t.Errorf("held for %v", got)
		}
		// A request that comes late has what is left.
		third := take(owner)
		for range 20 {
			time.Sleep(time.Second)
			if _, err := other.RenewTicket(t.Context(), third.ID); err != nil {
				t.Fatal(err)
			}
		}
		lost := make(chan struct{})
		r, err := other.redeem(t.Context(), testPool, third.ID, func() { close(lost) })
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-lost
		if got := time.Since(began); got > holdMax-20*time.Second || got < 5*time.Second {
			t.Errorf("broken off after %v", got)
		}
		if _, err := owner.TestTicket(t.Context(), third.ID, false, 0); err != nil {
			t.Errorf("the slot is given back (%v) while the request may still be in flight", err)
		}
		r.Release()
		time.Sleep(time.Second)
		// An heir knows how long it has been held.
		fourth := take(owner)
		for range 15 {
			time.Sleep(time.Second)
			if _, err := other.RenewTicket(t.Context(), fourth.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := owner.Drain(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		f.leave(2, 1)
		if got := held(other, fourth.ID); got > holdMax-14*time.Second {
			t.Errorf("held for %v more at the heir", got)
		}
		f.check()
	})
}

// Tickets for clients that somebody else names take turns, as requests do.
func TestTicketsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{Fair: true})
		n := f.all()[0]
		take := func(client string) string {
			tk, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: client}, time.Minute, "")
			if err != nil {
				t.Fatal(err)
			}
			return tk.ID
		}
		of := make(map[string]string)
		first := take("many")
		for range 4 {
			of[take("many")] = "many"
			synctest.Wait()
		}
		of[take("few")] = "few"
		time.Sleep(3 * time.Second) // of service
		if err := n.EndTicket(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		var order []string
		for range len(of) {
			time.Sleep(time.Second)
			for id, client := range of {
				if tk, err := n.TestTicket(t.Context(), id, false, 0); err == nil && tk.Granted {
					order = append(order, client)
					delete(of, id)
					if err := n.EndTicket(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					break
				}
			}
		}
		if len(order) != 5 || slices.Index(order, "few") > 1 {
			t.Errorf("admitted: %v", order)
		}
		f.check()
	})
}

// A client has as many tickets as it may, at a gateway.
func TestClientTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{ClientTickets: 3})
		n := f.all()[0]
		take := func(client string) (string, error) {
			tk, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: client, Counted: client != ""}, time.Minute, "")
			return tk.ID, err
		}
		var ids []string
		for range 3 {
			id, err := take("hog")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if _, err := take("hog"); !errors.Is(err, admission.ClientLimit) {
			t.Errorf("a fourth: %v", err)
		}
		for _, client := range []string{"other", "", "", "", ""} {
			if _, err := take(client); err != nil {
				t.Errorf("%q: %v", client, err)
			}
		}
		if _, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: "hog"}, time.Minute, ""); err != nil {
			t.Errorf("for the client, but not by it: %v", err)
		}
		for _, id := range ids { // one that waits, and one that has the slot
			if err := n.EndTicket(t.Context(), id); err != nil {
				t.Error(err)
			}
			if _, err := take("hog"); err != nil {
				t.Errorf("with one less: %v", err)
			}
		}
		time.Sleep(20 * time.Minute) // all expire
		f.check()
		if ts := n.pool(testPool).core.Tickets(); ts.Of("hog") > 0 {
			t.Errorf("a client that has no ticket left counts for %d", ts.Of("hog"))
		}
	})
}
