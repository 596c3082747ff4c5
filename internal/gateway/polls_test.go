package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
)

// However many clients wait at a gateway for another one's tickets, they are told at once that one is
// granted, and that other gateway gets questions only when their waits end.
func TestPollsOfOthersTickets(t *testing.T) {
	const (
		callers = 5
		wait    = 10 * time.Second
	)
	for _, tickets := range []int{1, 200} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
			owner, other := f.gateways[1], f.gateways[2]
			holds := request(t, owner, time.Minute)
			var ids []string
			for range tickets {
				ids = append(ids, request(t, owner, time.Minute).ID)
			}
			poll := func(id string, wait time.Duration) admission.Ticket {
				tk, err := other.TestTicket(t.Context(), id, false, wait)
				if err != nil {
					t.Error(err)
				}
				return tk
			}
			began := time.Now()
			var wg sync.WaitGroup
			for _, id := range ids {
				for range callers {
					wg.Go(func() {
						if tk := poll(id, wait); tk.Granted {
							t.Error("granted")
						}
					})
				}
			}
			wg.Wait()
			took := time.Since(began)
			if took < wait || took > wait+100*time.Millisecond {
				t.Errorf("%d tickets: the polls take %v", tickets, took)
			}
			if most := tickets * callers; other.asked > most || other.asked < tickets {
				t.Errorf("%d tickets, %d callers each: %d questions in %v, want one for each caller at most, at the end", tickets, callers, other.asked, took)
			}
			if tk := poll(ids[0], 0); tk.Granted || tk.ID != ids[0] {
				t.Errorf("%+v", tk)
			}
			released := time.Now().Add(wait / 3)
			time.AfterFunc(wait/3, func() { _ = owner.EndTicket(t.Context(), holds.ID) })
			if tk := poll(ids[0], wait); !tk.Granted || time.Since(released) > 100*time.Millisecond {
				t.Errorf("granted: %t, told after %v", tk.Granted, time.Since(released))
			}
		})
	}
}

// Of those who ask about a ticket while a question is under way, one asks the next one for all.
func TestQuestionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &poll{turn: make(chan struct{}, 1)}
		var questions atomic.Int64
		for range 5 {
			go func() {
				if _, err := p.next(t.Context(), func() (admission.Ticket, error) {
					questions.Add(1)
					time.Sleep(time.Second)
					return admission.Ticket{}, nil
				}); err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := questions.Load(); n != 2 {
			t.Errorf("%d questions", n)
		}
	})
}

// Waiting for a ticket of another gateway keeps it alive, and no longer than that.
func TestWatchedTicketLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		owner, other := f.gateways[1], f.gateways[2]
		holds, waits := request(t, owner, 5*time.Minute), request(t, owner, ttl)
		for _, wait := range []time.Duration{5 * ttl, 0} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
			_, err := other.TestTicket(ctx, waits.ID, false, wait)
			if (err != nil) != (wait > 0) {
				t.Errorf("a wait of %v: %v", wait, err)
			}
			cancel()
		}
		time.Sleep(2 * ttl)
		if _, err := other.TestTicket(t.Context(), waits.ID, false, 0); !errors.As(err, new(*admission.EndedError)) {
			t.Errorf("nobody waits for it any more: %v", err)
		}
		if _, err := other.TestTicket(t.Context(), holds.ID, true, time.Second); err != nil {
			t.Error(err)
		}
	})
}

// When the connection ends the gateway is asked again: nobody waits for it in vain.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		owner, other := f.gateways[1], f.gateways[2]
		holds, waits := request(t, owner, 5*time.Minute), request(t, owner, 5*time.Minute)
		breakOff := func() {
			owner.ConnectionChanged(transport.Change{Name: other.name})
			other.ConnectionChanged(transport.Change{Name: owner.name})
		}
		for range 3 {
			time.AfterFunc(time.Second, breakOff)
			if tk, err := other.TestTicket(t.Context(), waits.ID, false, 10*time.Second); err != nil || tk.Granted {
				t.Errorf("%+v, %v", tk, err)
			}
		}
		began := time.Now()
		time.AfterFunc(500*time.Millisecond, breakOff)
		time.AfterFunc(time.Second, func() { _ = owner.EndTicket(t.Context(), holds.ID) })
		if tk, err := other.TestTicket(t.Context(), waits.ID, false, 10*time.Second); err != nil || !tk.Granted || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("after %v: %+v, %v", time.Since(began), tk, err)
		}
	})
}

// A gateway that does not answer is asked less and less often.
func TestCallsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		owner, other := f.gateways[1], f.gateways[2]
		tk := request(t, owner, time.Minute)
		_ = owner.Close() // its process lives, and answers nothing
		asked := other.asked
		if _, err := other.RenewTicket(t.Context(), tk.ID); !errors.Is(err, admission.ErrElsewhere) {
			t.Errorf("nobody answers: %v", err)
		}
		if n := other.asked - asked; n < 5 || n > 20 {
			t.Errorf("it was asked %d times in %v", n, ticketPatience)
		}
	})
}
