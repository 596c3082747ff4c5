package node

import (
	"context"
	"errors"
	"testing"

	"github.com/kgate/kgate/internal/admission"
)

// TestOutcomes: only a request whose context has ended left before it was admitted.
func TestOutcomes(t *testing.T) {
	n := start(t, alone(t))
	_, unknown := n.RedeemTicket(t.Context(), "p", "x")
	_, pool := n.Acquire(t.Context(), admission.Request{Pool: "q"})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want admission.Outcome
	}{
		{t.Context(), unknown, admission.OutcomeNone},
		{t.Context(), pool, admission.OutcomeNone},
		{t.Context(), admission.ErrTicketUsed, admission.OutcomeNone},
		{t.Context(), admission.ErrTicketWaiting, admission.OutcomeNone},
		{t.Context(), admission.ErrElsewhere, admission.Isolated.Outcome()},
		{t.Context(), &admission.Refusal{Reason: admission.QueueFull}, admission.QueueFull.Outcome()},
		{gone, errors.New("the caller's cause"), admission.OutcomeClientGone},
	} {
		if got := outcomeOf(c.ctx, c.err); c.err == nil || got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
