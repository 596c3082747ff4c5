package gateway

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/pace"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/transport"
)

// A gateway that renews a ticket for the request which has redeemed it, and the
// owner of the ticket, as far as the slot's life goes.
type owner struct {
	ttl time.Duration
	// fast is how many seconds its clock shows in one of the gateway's.
	fast float64
	// ends is when it has the slot back in any case; zero: never.
	ends time.Time
	// expires is when the owner gives the slot to somebody else.
	expires time.Time
	// answer is what becomes of a renewal that is sent now.
	answer func(ctx context.Context, arrived func()) error
}

func (o *owner) renew(ctx context.Context) (admission.Ticket, error) {
	err := o.answer(ctx, o.sign)
	return o.ticket(), err
}

// sign takes in a renewal.
func (o *owner) sign() {
	o.expires = time.Now().Add(time.Duration(float64(pool.KeepFor(o.ttl)) / o.fast))
	if !o.ends.IsZero() && o.ends.Before(o.expires) {
		o.expires = o.ends
	}
}

func (o *owner) ticket() admission.Ticket {
	t := pool.Ticket{TTL: o.ttl, Expires: time.Duration(float64(time.Until(o.expires)) * o.fast)}
	return admission.Ticket{TTL: o.ttl, Left: t.Left(0)}
}

// fastest is the owner's clock a tenth fast, and the gateway's a tenth slow.
const fastest = 1.1 / 0.9

// sleep waits for d, or as long as ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errSilent = errors.New("no answer")

// faults are what can become of renewals, from some time on.
var faults = map[string]func(ctx context.Context, ttl time.Duration, arrived func()) error{
	// Nothing arrives, and nobody answers.
	"silent": func(ctx context.Context, _ time.Duration, _ func()) error { <-ctx.Done(); return ctx.Err() },
	// The call fails at once: the owner is lost, or this gateway isolated.
	"fails": func(context.Context, time.Duration, func()) error { return errSilent },
	// The call does not even end with its context.
	"stuck": func(context.Context, time.Duration, func()) error { time.Sleep(24 * time.Hour); return errSilent },
	// The owner hears it, and its answer is lost.
	"deaf": func(ctx context.Context, _ time.Duration, arrived func()) error {
		arrived()
		<-ctx.Done()
		return ctx.Err()
	},
}

// The request on a ticket's slot is aborted before the slot can be somebody
// else's, whatever the time to live, whenever the fault begins and however the clocks
// run.
func TestRedeemedEndsInTime(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for ttl := time.Second; ttl <= 10*time.Minute; ttl += time.Second {
				for _, fast := range []float64{fastest, 1, 1 / fastest}[:1+2*(int(ttl/time.Second)%7/6)] {
					synctest.Test(t, func(t *testing.T) {
						endsInTime(t, &owner{ttl: ttl, fast: fast}, 5*ttl/2+ttl/7, fault)
					})
				}
			}
		})
	}
}

// A request that is renewed as it should be is aborted in time when its hold ends.
func TestRedeemedEndsWithItsHold(t *testing.T) {
	for ttl := time.Second; ttl <= 10*time.Minute; ttl += 7 * time.Second {
		for _, fast := range []float64{fastest, 1, 1 / fastest} {
			for _, hold := range []time.Duration{ttl / 2, ttl, 3 * ttl} {
				synctest.Test(t, func(t *testing.T) {
					ends := time.Duration(float64(hold) / fast)
					endsInTime(t, &owner{ttl: ttl, fast: fast, ends: time.Now().Add(ends)}, ends/2, func(_ context.Context, _ time.Duration, arrived func()) error { arrived(); return nil })
				})
			}
		}
	}
}

func endsInTime(t *testing.T, o *owner, healthy time.Duration, fault func(context.Context, time.Duration, func()) error) {
	t.Helper()
	began, ttl := time.Now(), o.ttl
	o.sign()
	o.answer = func(ctx context.Context, arrived func()) error {
		if time.Since(began) < healthy {
			arrived()
			return nil
		}
		return fault(ctx, ttl, arrived)
	}
	var lost time.Time
	r, stop := redeemedOf(o, func() { lost = time.Now() })
	defer stop()
	time.Sleep(2 * (healthy + ttl))
	synctest.Wait()
	switch {
	case lost.IsZero():
		t.Fatalf("ttl %v: not lost", ttl)
	case lost.Before(began.Add(healthy)):
		t.Fatalf("ttl %v: lost after %v, while renewals were answered", ttl, lost.Sub(began))
	case o.expires.Sub(lost) < 100*time.Millisecond:
		t.Fatalf("ttl %v: lost %v before the slot is somebody else's", ttl, o.expires.Sub(lost))
	case r.Valid():
		t.Fatalf("ttl %v: valid although it is lost", ttl)
	}
}

// redeemedOf returns a slot that o's ticket has just been redeemed for.
func redeemedOf(o *owner, lost lossFunc) (r *Redeemed, stop func()) {
	g := &Gateway{pools: pools{env: env{now: time.Now, views: new(node)}}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	r = &Redeemed{pool: &poolDriver{poolEnv: &poolEnv{env: &g.env}}, holder: lost, end: func(context.Context) error { return nil }, renew: o.renew}
	r.start(time.Now(), o.ticket())
	return r, func() {
		g.cancel()
		g.wg.Wait()
	}
}

// A slow owner, and one that is replaced by its heir, lose nobody's slot.
func TestRedeemedOutlivesSlowOwners(t *testing.T) {
	for name, answer := range map[string]func(ttl time.Duration, tries int) (time.Duration, error){
		"slow":               func(ttl time.Duration, _ int) (time.Duration, error) { return min(ttl/4, 4*time.Second), nil },
		"two of three fail":  func(_ time.Duration, tries int) (time.Duration, error) { return 0, failUnless(tries%3 == 0) },
		"silent for a while": func(ttl time.Duration, tries int) (time.Duration, error) { return ttl, failUnless(tries%2 == 0) },
	} {
		t.Run(name, func(t *testing.T) {
			for ttl := time.Second; ttl <= 10*time.Minute; ttl += 7 * time.Second {
				synctest.Test(t, func(t *testing.T) {
					o := &owner{ttl: ttl, fast: 1}
					o.sign()
					tries := 0
					o.answer = func(ctx context.Context, arrived func()) error {
						tries++
						took, err := answer(ttl, tries)
						if err == nil && took == ttl {
							took = 0
						}
						if e := sleep(ctx, took); e != nil {
							return e
						}
						if err == nil {
							arrived()
						}
						return err
					}
					_, stop := redeemedOf(o, func() { t.Errorf("ttl %v: lost", ttl) })
					defer stop()
					time.Sleep(10 * ttl)
				})
			}
		})
	}
}

func failUnless(ok bool) error {
	if ok {
		return nil
	}
	return errSilent
}

// A suspended gateway does not know that it is, and renews its tickets as long as
// its lease runs. Whoever takes them over counts on that.
func TestHeirWaitsForWhatTheOwnerPromised(t *testing.T) {
	bindings(t, func(t *testing.T, binding admission.Binding) {
		const ttl, term = 5 * time.Second, 3 * time.Second
		f := newFleet(t, 4, 1, binding, time.Millisecond, PoolConfig{})
		f.heirs = true
		f.view.Lease = term
		old := f.gateways[2]
		tk := request(t, old, ttl)
		time.Sleep(time.Second)
		if !test(t, old, tk.ID).Granted {
			t.Fatal("not granted")
		}
		old.isolate(term)
		f.suspend(old.self, 1)
		// The holder can reach the old owner alone.
		var until time.Time
		for old.Standing().Until.After(time.Now()) {
			sent := time.Now()
			if _, err := old.tickets.here(t.Context(), old.self, ticketCall{Op: opRenew, ID: tk.ID}); err == nil {
				until = sent.Add(ttl)
			}
			time.Sleep(100 * time.Millisecond)
		}
		f.expire()
		time.Sleep(time.Until(until) - time.Millisecond)
		if _, err := f.gateways[1].RenewTicket(t.Context(), tk.ID); err != nil {
			t.Errorf("within what the owner had promised: %v", err)
		}
		time.Sleep(ttl + time.Second)
		f.check()
	})
}

// deaf lets no call through once it is on.
type deaf struct {
	Links
	on atomic.Bool
}

// Call implements Links.
func (d *deaf) Call(ctx context.Context, to transport.To, q transport.Question) ([]byte, error) {
	if d.on.Load() {
		return nil, errSilent
	}
	return d.Links.Call(ctx, to, q)
}

// The heir of a ticket whose hold is bounded gives the slot to nobody while a request
// is in flight on it, and to the next one not much later, although its wall clock and
// the lost gateway's differ.
func TestHeirAndAnotherWallClock(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			const ttl, term, holdMax = 5 * time.Second, 3 * time.Second, 30 * time.Second
			f := newFleet(t, 4, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
			f.heirs = true
			f.view.Lease = term
			old := f.gateways[2]
			for _, n := range f.all() {
				if n != old {
					n.wall = func() time.Time { return time.Now().Add(ahead) }
				}
			}
			began := time.Now()
			first, err := old.RequestTicket(t.Context(), admission.Request{Pool: testPool, HoldMax: holdMax}, ttl, "")
			if err != nil {
				t.Fatal(err)
			}
			second := request(t, f.gateways[3], 5*time.Minute)
			// The request is at a gateway that cannot ask the heir.
			heir := f.named(f.view.Ring().Successors("gw-2", 1)[0])
			user := f.gateways[4]
			if heir == user {
				user = f.gateways[1]
			}
			calls := &deaf{Links: user.links}
			user.links = calls
			r, err := user.redeem(t.Context(), testPool, first.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10*time.Second + 500*time.Millisecond) // between two renewals
			if !r.Valid() {
				t.Fatal("lost although it is renewed")
			}
			calls.on.Store(true)
			old.isolate(term)
			f.suspend(old.self, heir.self)
			time.AfterFunc(term, f.expire)
			for !test(t, f.gateways[3], second.ID).Granted {
				if held := time.Since(began); held > 11*time.Second+term*11/10+holdMax+time.Second {
					t.Fatalf("wall clock %v ahead: the slot is taken for %v", ahead, held)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if r.Valid() {
				t.Errorf("wall clock %v ahead: two have the slot after %v", ahead, time.Since(began))
			}
			r.Release()
			if err := f.gateways[3].EndTicket(t.Context(), second.ID); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			f.check()
		})
	}
}

// The promise to a holder ends so long before the slot is somebody else's that clocks
// which run differently do no harm, also where the hold is bounded.
func TestPromisesLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{})
		for _, c := range []struct{ holdMax, want time.Duration }{
			{0, 20 * time.Second}, {11150 * time.Millisecond, 10 * time.Second}, {5650 * time.Millisecond, 5 * time.Second},
		} {
			n := f.gateways[1]
			tk, err := n.RequestTicket(t.Context(), admission.Request{Pool: testPool, HoldMax: c.holdMax}, 20*time.Second, "")
			if err != nil {
				t.Fatal(err)
			}
			if tk.Left.Round(time.Microsecond) != c.want {
				t.Errorf("hold %v: %v is promised, want %v", c.holdMax, tk.Left, c.want)
			}
			if err := n.EndTicket(t.Context(), tk.ID); err != nil {
				t.Error(err)
			}
		}
	})
}

// lossy loses the answer to the first call that uses a ticket, once it was carried out.
type lossy struct {
	Links
	once sync.Once
	lost func()
}

// Call implements Links.
func (l *lossy) Call(ctx context.Context, to transport.To, q transport.Question) ([]byte, error) {
	answer, err := l.Links.Call(ctx, to, q)
	if err == nil && bytes.Contains(q.Body, []byte(`"use"`)) {
		l.once.Do(func() {
			answer, err = nil, errSilent
			l.lost()
		})
	}
	return answer, err
}

// A request whose use of a ticket was carried out, and the answer lost, has the slot
// all the same, also when the ticket's gateway was lost with the answer.
func TestRedeemWithALostAnswer(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 4, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
			f.heirs = true
			f.view.Lease = 3 * time.Second
			owner, user := f.gateways[2], f.gateways[3]
			tk := request(t, owner, time.Minute)
			answers := 0
			user.links = &lossy{Links: user.links, lost: func() {
				if answers++; lost {
					owner.isolate(3 * time.Second)
					f.suspend(owner.self, 1)
					time.AfterFunc(4*time.Second, f.expire)
				}
			}}
			r, err := user.redeem(t.Context(), testPool, tk.ID, nil)
			if err != nil || answers != 1 {
				t.Fatalf("owner lost %t: %v, %d answers lost", lost, err, answers)
			}
			if _, err := user.redeem(t.Context(), testPool, tk.ID, nil); !errors.Is(err, admission.ErrTicketUsed) {
				t.Errorf("owner lost %t: another request: %v", lost, err)
			}
			if err := user.EndTicket(t.Context(), tk.ID); !errors.Is(err, admission.ErrTicketUsed) {
				t.Errorf("owner lost %t: somebody ends it: %v", lost, err)
			}
			if !r.Valid() {
				t.Errorf("owner lost %t: the slot is lost", lost)
			}
			r.Release()
			time.Sleep(10 * time.Second)
			f.check()
		})
	}
}

// silent answers as a gateway does that is paused from its first use of a ticket on: its
// connections stay.
type silent struct {
	Links
	addr   string
	paused func()
	once   sync.Once
}

// Call implements Links.
func (s *silent) Call(ctx context.Context, to transport.To, q transport.Question) ([]byte, error) {
	if to.Addr == s.addr && bytes.Contains(q.Body, []byte(`"use"`)) {
		s.once.Do(s.paused)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.Links.Call(ctx, to, q)
}

// A request on a ticket whose gateway is paused is answered when another one has the ticket,
// when its own gateway has lost the lease, and within a bound if neither comes.
func TestRedeemWithAPausedGateway(t *testing.T) {
	for name, tt := range map[string]struct {
		paused func(f *fleet, owner, user *node)
		after  time.Duration
		want   error
	}{
		"replaced": {func(f *fleet, owner, _ *node) {
			owner.isolate(3 * time.Second)
			time.AfterFunc(time.Second, func() { f.suspend(owner.self, 1) })
			time.AfterFunc(4*time.Second, f.expire)
		}, 4 * time.Second, nil},
		"the lease is lost": {func(_ *fleet, _, user *node) { user.isolate(3 * time.Second) }, 3 * time.Second, admission.Isolated},
		"neither":           {func(*fleet, *node, *node) {}, ticketPatience, admission.ErrElsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
				f.heirs = true
				f.view.Lease = 3 * time.Second
				owner, user := f.gateways[2], f.gateways[3]
				tk := request(t, owner, time.Minute)
				m, _ := f.view.Member(owner.self)
				user.links = &silent{Links: user.links, addr: m.PeerAddr, paused: func() { tt.paused(f, owner, user) }}
				began := time.Now()
				r, err := user.redeem(t.Context(), testPool, tk.ID, nil)
				if took := time.Since(began); !errors.Is(err, tt.want) || took > tt.after+500*time.Millisecond {
					t.Errorf("after %v: %v, want %v after %v", took, err, tt.want, tt.after)
				}
				if err == nil {
					r.Release()
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// A wait without end for a ticket of another gateway does not end at once.
func TestWaitWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		owner, user := f.gateways[1], f.gateways[2]
		held := slotAt(t, owner)
		tk, err := owner.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, "")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Second, held.Release)
		if got, err := user.TestTicket(t.Context(), tk.ID, false, math.MaxInt64); err != nil || !got.Granted {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A slot's fence stays the same while new epochs begin. The race detector sees whether reading it
// is safe then.
func TestFenceWhileEpochsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 2, admission.BindingLate, time.Millisecond, PoolConfig{})
		s := slotAt(t, f.gateways[1])
		defer s.Release()
		fence, grant := s.Fence(), s.GrantInfo()
		for k := 3; k < 9; k++ {
			f.setK(k)
			for range 20 {
				if got := s.Fence(); got != fence {
					t.Errorf("%s became %s", fence, got)
				}
				if got := s.GrantInfo(); got != grant {
					t.Errorf("%+v became %+v", grant, got)
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
}

// A request that leaves before it knows that its ticket's slot is its own leaves the slot
// to others.
func TestRedeemLeftTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		f.heirs = true
		owner, user := f.gateways[2], f.gateways[3]
		tk := request(t, owner, time.Minute)
		ctx, leave := context.WithCancel(t.Context())
		user.links = &lossy{Links: user.links, lost: leave}
		if r, err := user.redeem(ctx, testPool, tk.ID, nil); err == nil {
			t.Fatalf("it is redeemed: %v", r)
		}
		time.Sleep(time.Second)
		var ended *admission.EndedError
		if err := owner.EndTicket(t.Context(), tk.ID); !errors.As(err, &ended) {
			t.Errorf("the ticket has not ended: %v", err)
		}
		f.check()
	})
}

// A request that ends, or redeems a ticket, while its gateway is closed begins nothing
// that Close does not wait for.
func TestNothingBeginsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, 0, PoolConfig{})
		n := f.gateways[1]
		tk := request(t, n, time.Minute)
		r, err := n.redeem(t.Context(), testPool, tk.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n.background(func() { t.Error("something begins after Close") })
		r.Release()
		synctest.Wait()
	})
}

// A request on a ticket's slot moves its bytes at the pace of the ticket's token, at its own
// gateway, and the ticket's gateway moves no more meanwhile.
func TestRedeemedCarriesItsPartOfTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 1 << 20 // bytes per second and token
		f := newFleet(t, 2, 2, admission.BindingLate, time.Millisecond, PoolConfig{})
		f.nextEpoch(func(_ *membership.View, p *membership.Pool) { p.Rate.Down = 2 * each })
		f.follow()
		time.Sleep(time.Second)
		owner, user := f.gateways[1], f.gateways[2]
		shares := func(when string, wantOwner, wantUser float64) {
			t.Helper()
			synctest.Wait()
			o, u := owner.pool(testPool).down.Totals().Share, user.pool(testPool).down.Totals().Share
			if o != wantOwner*each || u != wantUser*each {
				t.Errorf("%s: the ticket's gateway has %.1f MiB/s, the request's %.1f", when, o/each, u/each)
			}
		}
		r, other := redeemedAt(t, user, owner, nil), request(t, owner, time.Minute)
		shares("one is redeemed", 1, 1)
		second, err := user.redeem(t.Context(), testPool, other.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		shares("both are redeemed", 0, 2)
		second.lose()
		shares("one is lost", 0, 1) // its gateway cannot know yet
		second.Release()
		time.Sleep(time.Second)
		shares("it is released", 1, 1)
		var down pace.Flow
		pacer, _ := r.Pacers()
		down.Begin(pacer)
		began := time.Now()
		for moved := 0; moved < 4*each; {
			n, err := down.Take(t.Context(), each)
			if err != nil {
				t.Fatal(err)
			}
			moved += n
		}
		// It asks for the other token, too, and has it after a while.
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("4 MiB took %v", took)
		}
		down.Stop()
		r.Release()
		time.Sleep(time.Second)
		f.check()
	})
}
