package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
)

// classedFleet has upstreams with a k of their own, that count.
type classedFleet struct {
	*fleet
	mu    sync.Mutex
	now   map[string]int
	k     map[string]int // that all gateways have followed
	limit map[string]int // what each may have in flight
	next  kmutex.Token   // the lowest number that no class has had
	down  map[string]bool
	ended map[string]int
	// changed is when some k was changed last. A ticket may have been granted before, and be used
	// after it: what it adds is no fault then.
	changed time.Time
}

// underWay is how long after its grant a ticket is used, at most.
const underWay = 100 * time.Millisecond

func upstreamOf(i int) string { return fmt.Sprintf("http://10.0.2.%d:8000", i) }

func newClassedFleet(t *testing.T, n int, cfg PoolConfig, ks ...int) *classedFleet {
	t.Helper()
	c := &classedFleet{now: make(map[string]int), k: make(map[string]int), limit: make(map[string]int), down: make(map[string]bool), ended: make(map[string]int)}
	sum := 0
	for _, k := range ks {
		sum += k
	}
	c.fleet = newFleet(t, n, sum, admission.BindingLate, time.Millisecond, cfg)
	c.reclass(func(p *membership.Pool) {
		for i, k := range ks {
			c.set(p, upstreamOf(i+1), k)
		}
	})
	return c
}

// reclass begins an epoch with other classes.
func (c *classedFleet) reclass(do func(*membership.Pool)) {
	c.nextEpoch(func(_ *membership.View, p *membership.Pool) {
		p.Classes = slices.Clone(p.Classes)
		do(p)
		p.K = 0
		for _, class := range p.Classes {
			p.K += class.K
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed = time.Now()
		clear(c.k) // while some follow and others do not
		for _, class := range p.Classes {
			c.limit[class.Upstream] = max(c.limit[class.Upstream], class.K)
		}
	})
	c.follow()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.view.Pools[0].Classes { // all are in the next epoch, or wait for it
		c.k[class.Upstream] = class.K
		c.limit[class.Upstream] = max(class.K, c.now[class.Upstream])
	}
}

// set is what views does with a command.
func (c *classedFleet) set(p *membership.Pool, upstream string, k int) {
	i := slices.IndexFunc(p.Classes, func(class membership.Class) bool { return class.Upstream == upstream })
	if i < 0 {
		i, p.Classes = len(p.Classes), append(p.Classes, membership.Class{Upstream: upstream})
	}
	class := &p.Classes[i]
	class.K, class.Tokens = k, class.Tokens.Clone()
	for ; class.Tokens.Len() < k; c.next++ {
		class.Tokens.Add(c.next)
	}
}

// enter counts a request at its upstream, and reports whether that is up.
func (c *classedFleet) enter(upstream string, byTicket bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down[upstream] {
		return false
	}
	c.now[upstream]++
	if c.now[upstream] > c.limit[upstream] && (!byTicket || time.Since(c.changed) >= underWay) {
		c.t.Errorf("%s has %d in flight, k is %d", upstream, c.now[upstream], c.limit[upstream])
	}
	return true
}

func (c *classedFleet) leave(upstream string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[upstream]--
	c.ended[upstream]++
	if k, known := c.k[upstream]; known && c.limit[upstream] > k {
		c.limit[upstream] = max(k, c.now[upstream]) // nothing new comes in before fewer than k run
	}
}

func (c *classedFleet) setDown(upstream string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[upstream] = down
}

// request acquires a slot and uses it as the proxy does: from an upstream that is down it comes
// back, after the gateway has barred that.
func (c *classedFleet) request(ctx context.Context, n *node, d time.Duration) error {
	s, err := n.Acquire(ctx, admission.Request{Pool: testPool, Wait: -1, Client: fmt.Sprint(int(d) % 5)})
	if err != nil {
		return err
	}
	defer s.Release()
	for {
		up := s.Upstream()
		if c.enter(up, false) {
			time.Sleep(d)
			c.leave(up)
			return nil
		}
		c.bar(n, up, true)
		if err := s.Again(ctx, -1); err != nil {
			return err
		}
	}
}

// byTicket is request by a ticket of one gateway, which is used at another. A ticket whose upstream is
// down waits again.
func (c *classedFleet) byTicket(ctx context.Context, owner, user *node, d time.Duration) error {
	tk, err := owner.RequestTicket(ctx, admission.Request{Pool: testPool}, time.Minute, "")
	for err == nil {
		var now admission.Ticket
		if now, err = owner.TestTicket(ctx, tk.ID, false, time.Minute); err != nil || !now.Granted {
			continue
		}
		var s admission.Slot
		if s, err = user.RedeemTicket(ctx, testPool, tk.ID, nil); err != nil {
			return err
		}
		up := admission.UpstreamOf(s)
		if up != now.Upstream {
			c.t.Errorf("a ticket for %s has a slot of %s", now.Upstream, up)
		}
		if c.enter(up, true) {
			time.Sleep(d)
			c.leave(up)
			s.Release()
			return nil
		}
		c.bar(user, up, true)
		if err := s.(*Redeemed).Again(ctx, -1); !errors.Is(err, admission.UpstreamDown) {
			return err
		}
		s.Release()
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// bar bars an upstream at a gateway, or no longer.
func (c *classedFleet) bar(n *node, upstream string, barred bool) {
	before := n.barredOf(testPool)
	after := slices.DeleteFunc(slices.Clone(before), func(u string) bool { return u == upstream })
	if barred {
		after = append(after, upstream)
	}
	n.Bar(testPool, after)
}

// TestUpstreamsComeAndGo: upstreams go down and come back, here and there, their k changes, and
// clients leave in every state. No upstream has more than its k, and everybody gets in.
func TestUpstreamsComeAndGo(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("KGATE_SOAK") != "" {
		seeds = 100
	}
	for _, cfg := range []PoolConfig{{}, {Fair: true}, {ClientInFlight: 2}} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("fair %t, in flight %d, seed %d", cfg.Fair, cfg.ClientInFlight, seed), func(t *testing.T) { upstreamsComeAndGo(t, cfg, seed) })
		}
	}
}

func upstreamsComeAndGo(t *testing.T, cfg PoolConfig, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 3, cfg, 2, 2, 4)
		var wg sync.WaitGroup
		for i, n := range c.all() {
			for j := range 20 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed<<32|uint64(i), uint64(j)))
					for range 40 {
						if r.IntN(8) == 0 {
							if err := c.byTicket(t.Context(), n, c.all()[r.IntN(3)], time.Duration(r.IntN(20))*time.Millisecond); err != nil {
								t.Error("by ticket:", err)
							}
							continue
						}
						ctx, cancel := context.WithCancel(t.Context())
						if r.IntN(3) == 0 {
							ctx, cancel = context.WithTimeout(t.Context(), time.Duration(r.IntN(300))*time.Millisecond)
						}
						err := c.request(ctx, n, time.Duration(r.IntN(20))*time.Millisecond)
						if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, admission.UpstreamDown) {
							t.Error(err)
						}
						cancel()
					}
				})
			}
		}
		r := rand.New(rand.NewPCG(seed, 7))
		for range 60 {
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			n, up := c.all()[r.IntN(3)], upstreamOf(1+r.IntN(3))
			switch r.IntN(5) {
			case 0:
				c.setDown(up, true)
			case 1, 2:
				c.setDown(up, false)
				for _, n := range c.all() {
					c.bar(n, up, false)
				}
			case 3:
				c.bar(n, up, r.IntN(2) == 0)
			case 4:
				c.reclass(func(p *membership.Pool) { c.set(p, up, 1+r.IntN(4)) })
			}
		}
		for i := range 3 {
			c.setDown(upstreamOf(i+1), false)
			for _, n := range c.all() {
				c.bar(n, upstreamOf(i+1), false)
			}
		}
		wg.Wait()
		c.check()
		for _, n := range c.all() {
			if p := n.pool(testPool); len(p.clients) > 0 || len(p.slots) > 0 || p.waiting != 0 || p.inFlight != 0 || p.requests != 0 {
				t.Errorf("left behind: %d clients, %d slots, %d waiting, %d in flight, %d requests", len(p.clients), len(p.slots), p.waiting, p.inFlight, p.requests)
			}
		}
	})
}

// TestBarredBefore: what is barred before the view that has its tokens, or before this incarnation,
// is barred.
func TestBarredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 2, PoolConfig{}, 1)
		n := c.all()[0]
		n.Bar(testPool, []string{upstreamOf(2)})
		c.reclass(func(p *membership.Pool) { c.set(p, upstreamOf(2), 3) })
		first := slotAt(t, n)
		if up := first.Upstream(); up != upstreamOf(1) {
			t.Error("a slot for", up)
		}
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: time.Second}); !errors.Is(err, admission.Timeout) {
			t.Errorf("%v, want a timeout", err)
		}
		first.Release()
		c.check()
	})
}

// TestOthersInFullUse: when an upstream dies, those that wait get the places of the others at
// once, and it has its own back within the offer interval.
func TestOthersInFullUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 3, PoolConfig{}, 2, 2, 4)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, n := range c.all() {
			for range 12 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if err := c.request(ctx, n, 20*time.Millisecond); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}
		}
		time.Sleep(time.Second)
		served := func(d time.Duration) (all, dead int) {
			c.mu.Lock()
			clear(c.ended)
			c.mu.Unlock()
			time.Sleep(d)
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.ended[upstreamOf(2)] + c.ended[upstreamOf(3)], c.ended[upstreamOf(1)]
		}
		c.setDown(upstreamOf(1), true)
		time.Sleep(100 * time.Millisecond)
		// 6 slots of 20 ms each: 300 a second, less the ways of messages.
		if n, dead := served(time.Second); n < 270 || dead > 0 {
			t.Errorf("%d served in a second at the two others, %d at the dead one", n, dead)
		}
		c.setDown(upstreamOf(1), false)
		for _, n := range c.all() {
			c.bar(n, upstreamOf(1), false)
		}
		time.Sleep(1100 * time.Millisecond)
		if n, back := served(time.Second); n < 270 || back < 90 {
			t.Errorf("%d served in a second at the two others, %d at the one that is back", n, back)
		}
		// One gateway alone does not reach it: the others use its places.
		one := c.all()[0]
		c.bar(one, upstreamOf(1), true)
		time.Sleep(1100 * time.Millisecond)
		if n, back := served(time.Second); n < 270 || back < 85 {
			t.Errorf("%d served in a second at the two others, %d at the one that a gateway does not reach", n, back)
		}
		cancel()
		wg.Wait()
		c.check()
	})
}

// TestAgain: who comes back from a dead upstream is served before all that wait at its gateway.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 2, PoolConfig{}, 1, 1)
		n := c.all()[0]
		first, second := slotAt(t, n), slotAt(t, n)
		dead := first.Upstream()
		order := make(chan string, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			if err != nil {
				t.Error(err)
				return
			}
			order <- "who waited"
			s.Release()
		})
		time.Sleep(time.Second)
		c.bar(n, dead, true)
		wg.Go(func() {
			if err := first.Again(t.Context(), -1); err != nil {
				t.Error(err)
			}
			order <- "who came back"
			if up := first.Upstream(); up == dead {
				t.Error("it got the dead upstream again")
			}
			first.Release()
		})
		time.Sleep(time.Second)
		second.Release()
		wg.Wait()
		if who := <-order; who != "who came back" {
			t.Error("first was", who)
		}
		c.check()
	})
}

// TestAgainEnds: what else may become of a request that waits again.
func TestAgainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 2, PoolConfig{}, 1, 1)
		n := c.all()[0]
		busy := slotAt(t, n)
		again := func(do func(*Slot) error) error {
			s := slotAt(t, n)
			c.bar(n, s.Upstream(), true)
			err := do(s)
			s.Release() // as the proxy does in any case
			n.Bar(testPool, nil)
			return err
		}
		if err := again(func(s *Slot) error { return s.Again(t.Context(), time.Second) }); !errors.Is(err, admission.Timeout) {
			t.Errorf("%v, want a timeout", err)
		}
		if err := again(func(s *Slot) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return s.Again(ctx, -1)
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the client", err)
		}
		if err := again(func(s *Slot) error {
			n.Bar(testPool, []string{upstreamOf(1), upstreamOf(2)})
			return s.Again(t.Context(), -1)
		}); !errors.Is(err, admission.UpstreamDown) {
			t.Errorf("%v, want upstream-down", err)
		}
		// The timer of its first wait comes late.
		if err := again(func(s *Slot) error {
			time.AfterFunc(500*time.Millisecond, func() { s.expire(make(chan struct{}), admission.Draining) })
			return s.Again(t.Context(), time.Second)
		}); !errors.Is(err, admission.Timeout) {
			t.Errorf("%v, want a timeout", err)
		}
		// The last upstream goes while it waits again.
		if err := again(func(s *Slot) error {
			time.AfterFunc(time.Second, func() { n.Bar(testPool, []string{upstreamOf(1), upstreamOf(2)}) })
			return s.Again(t.Context(), -1)
		}); !errors.Is(err, admission.UpstreamDown) {
			t.Errorf("%v, want upstream-down", err)
		}
		busy.Release()
		c.check()
	})
}

// TestAllDown: nobody waits for an upstream that may not come back, and no slot is taken.
func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 2, PoolConfig{}, 1, 1)
		n := c.all()[0]
		n.Bar(testPool, []string{upstreamOf(1), upstreamOf(2)})
		if _, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}); !errors.Is(err, admission.UpstreamDown) {
			t.Errorf("%v, want upstream-down", err)
		}
		if s := slotAt(t, c.all()[1]); s.Upstream() == "" {
			t.Error("a slot for no upstream")
		} else {
			s.Release()
		}
		n.Bar(testPool, nil)
		slotAt(t, n).Release()
		c.check()
	})
}

// TestUpstreamGoes: an upstream at k 0 gets nothing new, what it has ends in peace, and it is
// forgotten after that, not before; its numbers may be another's then.
func TestUpstreamGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 3, PoolConfig{}, 1, 3)
		goes := upstreamOf(1)
		var held []*Slot
		for len(held) < 4 {
			held = append(held, slotAt(t, c.all()[len(held)%3]))
		}
		for _, s := range held { // as many are left as may be, and one of them is there
			if s.Upstream() != goes {
				s.Release()
				break
			}
		}
		c.reclass(func(p *membership.Pool) { c.set(p, goes, 0) })
		known := func() bool {
			c.fleet.mu.Lock()
			defer c.fleet.mu.Unlock()
			_, known := c.view.Pools[0].UpstreamK(goes)
			return known
		}
		time.Sleep(20 * time.Second)
		if !known() {
			t.Error("it is forgotten, with a request on it")
		}
		for _, s := range held {
			if s.Upstream() == goes {
				s.Release()
			}
		}
		time.Sleep(20 * time.Second)
		if known() {
			t.Error("it is not forgotten")
		}
		for _, s := range held {
			s.Release()
		}
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				if err := c.request(t.Context(), c.all()[i%3], 10*time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if c.ended[goes] > 0 {
			t.Error("it got requests")
		}
		c.check()
	})
}

// TestOfferedAgain: a place that nobody in line could use goes to the first who can after all,
// within the offer interval, wherever it rests.
func TestOfferedAgain(t *testing.T) {
	for i := range 2 {
		synctest.Test(t, func(t *testing.T) {
			c := newClassedFleet(t, 2, PoolConfig{}, 1, 1)
			first, last := c.all()[i], c.all()[1-i]
			var busy *Slot
			var wg sync.WaitGroup
			for _, s := range []*Slot{slotAt(t, first), slotAt(t, last)} {
				if s.Upstream() == upstreamOf(1) {
					busy = s
				} else {
					defer s.Release()
				}
			}
			wait := func(n *node) <-chan time.Time {
				at := make(chan time.Time, 1)
				c.bar(n, upstreamOf(1), true)
				wg.Go(func() {
					s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: 10 * time.Second})
					if at <- time.Now(); err == nil {
						s.Release()
					}
				})
				time.Sleep(100 * time.Millisecond)
				return at
			}
			gotAt := wait(first)
			wait(last)
			busy.Release()
			time.Sleep(50 * time.Millisecond)
			since := time.Now()
			c.bar(first, upstreamOf(1), false)
			if took := (<-gotAt).Sub(since); took > 1050*time.Millisecond {
				t.Errorf("first at gateway %d: %v", i+1, took)
			}
			wg.Wait()
		})
	}
}

// TestTicketGivenBack: a ticket whose upstream the request that redeems it cannot reach waits again,
// ahead of all that wait at its gateway, and that one is told. Then the ticket is as good as new.
func TestTicketGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 3, PoolConfig{}, 1, 1)
		owner, user := c.all()[0], c.all()[1]
		take := func() admission.Ticket {
			tk, err := owner.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, "")
			if err != nil {
				t.Fatal(err)
			}
			return tk
		}
		state := func(tk admission.Ticket, granted bool) admission.Ticket {
			now, err := owner.TestTicket(t.Context(), tk.ID, !granted, time.Second)
			if err != nil || now.Granted != granted {
				t.Fatalf("%+v, %v", now, err)
			}
			return now
		}
		other := slotAt(t, owner)
		first, second := take(), take()
		dead := state(first, true).Upstream
		giveBack := func() {
			s, err := user.RedeemTicket(t.Context(), testPool, first.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.bar(user, dead, true)
			if err := s.(*Redeemed).Again(t.Context(), -1); !errors.Is(err, admission.UpstreamDown) {
				t.Errorf("%v, want upstream-down", err)
			}
			s.Release()
		}
		suspected := 0
		owner.cfg.Suspect = func(_, upstream string) {
			if suspected++; upstream != dead {
				t.Errorf("%s is suspected", upstream)
			}
			go c.bar(owner, dead, true)
		}
		giveBack() // and the owner gives it the same one, which is free and as far as it knows there
		synctest.Wait()
		if state(first, true).Upstream != dead {
			t.Error("another upstream")
		}
		giveBack()
		state(first, false)
		if _, err := user.RedeemTicket(t.Context(), testPool, first.ID, nil); !errors.Is(err, admission.ErrTicketWaiting) {
			t.Errorf("%v", err)
		}
		other.Release()
		if up := state(first, true).Upstream; up == dead || suspected != 2 {
			t.Errorf("a slot of %s, %d times suspected", up, suspected)
		}
		state(second, false)
		s, err := user.RedeemTicket(t.Context(), testPool, first.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Release()
		state(second, true)
		if err := owner.EndTicket(t.Context(), second.ID); err != nil {
			t.Fatal(err)
		}
		c.bar(user, dead, false)
		c.bar(owner, dead, false)
		c.check()
	})
}

// TestTicketGivenBackOutlives: a ticket that was given back waits at its heir when its gateway is
// lost.
func TestTicketGivenBackOutlives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassedFleet(t, 3, PoolConfig{}, 1, 1)
		owner, user := c.all()[0], c.all()[1]
		other := slotAt(t, user)
		tk, err := owner.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := user.RedeemTicket(t.Context(), testPool, tk.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.all() {
			c.bar(n, admission.UpstreamOf(s), true)
		}
		_ = s.(*Redeemed).Again(t.Context(), -1)
		c.suspend(owner.self, user.self)
		time.Sleep(time.Second)
		c.expire()
		if now, err := user.TestTicket(t.Context(), tk.ID, true, 10*time.Second); err != nil || now.Granted {
			t.Errorf("%+v, %v", now, err)
		}
		other.Release()
		if now, err := user.TestTicket(t.Context(), tk.ID, false, 10*time.Second); err != nil || !now.Granted || now.Upstream == admission.UpstreamOf(s) {
			t.Errorf("%+v, %v", now, err)
		}
		_ = user.EndTicket(t.Context(), tk.ID)
		for _, n := range c.all() {
			n.Bar(testPool, nil)
		}
	})
}

// TestTicketOutOfReach: a ticket that waits at a gateway that reaches no upstream stands in nobody's way, and
// has its slot once it does.
func TestTicketOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const from, end, hold = time.Second, 10 * time.Second, 50 * time.Millisecond
		for at := range 3 {
			f := newClassedFleet(t, 3, PoolConfig{}, 4, 1)
			all := f.all()
			far, one, other := all[at], all[(at+1)%3], all[(at+2)%3]
			d := newDemands(t, 5, from)
			d.keep(one, "one", 10, hold, 0, end)
			d.keep(other, "other", 10, hold, 0, end)
			time.Sleep(hold)
			ticket, err := far.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, "")
			if err != nil || ticket.Granted {
				t.Fatal(err, ticket)
			}
			far.Bar(testPool, []string{upstreamOf(1), upstreamOf(2)})
			time.Sleep(end - hold)
			if of, idle := d.shares(); math.Abs(of["one"]-of["other"]) > 0.1 || idle > 0.05 {
				t.Errorf("gateway %d: shares are %v; %.1f %% idle", at, of, 100*idle)
			}
			far.Bar(testPool, nil)
			if ticket, err = far.TestTicket(t.Context(), ticket.ID, false, time.Second); err != nil || !ticket.Granted {
				t.Errorf("gateway %d: %v, %+v", at, err, ticket)
			}
			d.Wait()
		}
	})
}
