package downstream

import "testing"

// TestTransitions has what each event does to a connection, state by state. What is not here does
// nothing.
func TestTransitions(t *testing.T) {
	type row struct {
		in state
		on event
		transition
	}
	want := make(map[[2]int]transition)
	for _, r := range []row{
		{isNew, gotBytes, transition{inHead, nothing}},
		{isNew, gotHead, transition{serving, nothing}},
		{isNew, timedOut, transition{isNew, end}},
		{isNew, isFull, transition{isNew, end}},
		{isNew, isLast, transition{draining, drain}}, // it was no request
		{isNew, isSwitched, transition{tunnel, nothing}},
		{isNew, byUs, transition{closed, tell}},

		{isIdle, gotBytes, transition{inHead, boundHead}},
		{isIdle, gotHead, transition{serving, nothing}},
		{isIdle, timedOut, transition{isIdle, end}},
		{isIdle, isFull, transition{isIdle, end}},
		{isIdle, isLast, transition{draining, drain}},
		{isIdle, isSwitched, transition{tunnel, nothing}},
		{isIdle, byUs, transition{closed, tell}},

		{inHead, gotHead, transition{serving, nothing}}, // its time goes on with more bytes
		{inHead, timedOut, transition{inHead, end}},
		{inHead, isFull, transition{inHead, end}},
		{inHead, isLast, transition{draining, drain}},
		{inHead, isSwitched, transition{tunnel, nothing}},
		{inHead, byUs, transition{closed, tell}},

		{serving, gotEnd, transition{serving, tell}},
		{serving, gotReset, transition{serving, tell}},
		{serving, isAnswered, transition{isIdle, nothing}}, // a refusal, too
		{serving, isLast, transition{draining, drain}},
		{serving, isSwitched, transition{tunnel, nothing}},
		{serving, byUs, transition{closed, tell}},

		{draining, gotReset, transition{draining, end}},
		{draining, timedOut, transition{draining, end}},
		{draining, byUs, transition{closed, tell}},

		{tunnel, gotReset, transition{tunnel, tell}}, // one side that ends is the tunnel's own affair
		{tunnel, byUs, transition{closed, tell}},
	} {
		want[[2]int{int(r.in), int(r.on)}] = r.transition
	}
	for s := range states {
		for e := range events {
			w, listed := want[[2]int{int(s), int(e)}]
			if !listed {
				w = transition{s, nothing}
			}
			if got := transitions[s][e]; got != w {
				t.Errorf("state %d, event %d: %+v, want %+v", s, e, got, w)
			}
		}
	}
}
