package gateway

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// However many clients ask a gateway about another one's tickets, that one gets one question for each
// ticket and second. Who can wait is told at once that a ticket is granted, as
// long as few wait.
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
			took, seconds := time.Since(began), int(wait/pollEvery)
			if took < wait || took > wait+pollEvery {
				t.Errorf("%d tickets: the polls take %v", tickets, took)
			}
			if most := tickets * (seconds + 2); other.asked > most || other.asked < tickets*seconds {
				t.Errorf("%d tickets, %d callers each: %d questions in %v, want at most %d", tickets, callers, other.asked, took, most)
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
