package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A gateway that renews a ticket for the request which has redeemed it, and the
// owner of the ticket, as far as the slot's life goes.
type owner struct {
	ttl time.Duration
	// expires is when the owner gives the slot to somebody else.
	expires time.Time
	// answer is what becomes of a renewal that is sent now.
	answer func(ctx context.Context, arrived func()) error
}

func (o *owner) renew(ctx context.Context) (Ticket, error) {
	err := o.answer(ctx, func() { o.expires = time.Now().Add(o.ttl) })
	return Ticket{TTL: o.ttl, Left: time.Until(o.expires)}, err
}

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

// The request on a ticket's slot is broken off before the slot can be somebody
// else's, whatever the time to live and whenever the fault begins.
func TestRedeemedEndsInTime(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for ttl := time.Second; ttl <= 10*time.Minute; ttl += time.Second {
				synctest.Test(t, func(t *testing.T) {
					endsInTime(t, ttl, 5*ttl/2+ttl/7, fault)
				})
			}
		})
	}
}

func endsInTime(t *testing.T, ttl, healthy time.Duration, fault func(context.Context, time.Duration, func()) error) {
	t.Helper()
	began := time.Now()
	o := &owner{ttl: ttl, expires: began.Add(ttl)}
	o.answer = func(ctx context.Context, arrived func()) error {
		if time.Since(began) < healthy {
			arrived()
			return nil
		}
		return fault(ctx, ttl, arrived)
	}
	r, stop := redeemedOf(o)
	defer stop()
	var lost time.Time
	r.OnLost(func() { lost = time.Now() })
	time.Sleep(healthy + 2*ttl)
	synctest.Wait()
	switch {
	case lost.IsZero():
		t.Fatalf("ttl %v: not lost", ttl)
	case lost.Before(began.Add(healthy)):
		t.Fatalf("ttl %v: lost after %v, while renewals were answered", ttl, lost.Sub(began))
	case o.expires.Sub(lost) < ttl/20:
		t.Fatalf("ttl %v: lost %v before the slot is somebody else's", ttl, o.expires.Sub(lost))
	case r.Valid():
		t.Fatalf("ttl %v: valid although it is lost", ttl)
	}
}

// redeemedOf returns a slot that o's ticket has just been redeemed for.
func redeemedOf(o *owner) (r *Redeemed, stop func()) {
	g := &Gateway{now: time.Now, cfg: Config{Views: new(node)}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	r = &Redeemed{g: g, ticket: Ticket{TTL: o.ttl, Left: o.ttl}, renew: o.renew}
	r.start(time.Now())
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
					o := &owner{ttl: ttl}
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
					r, stop := redeemedOf(o)
					defer stop()
					r.OnLost(func() { t.Errorf("ttl %v: lost", ttl) })
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
	bindings(t, func(t *testing.T, binding string) {
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
			if _, err := old.here(t.Context(), old.self, ticketCall{Op: opRenew, ID: tk.ID}); err == nil {
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
