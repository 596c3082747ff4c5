package pool

import (
	"container/heap"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// expiries are tickets by when they are due, as container/heap wants them.
type expiries []*Ticket

// Len implements heap.Interface.
func (e expiries) Len() int { return len(e) }

// Less implements heap.Interface.
func (e expiries) Less(i, j int) bool { return e[i].due() < e[j].due() }

// Swap implements heap.Interface.
func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push implements heap.Interface.
func (e *expiries) Push(x any) {
	t := x.(*Ticket)
	t.index = len(*e)
	*e = append(*e, t)
}

// Pop implements heap.Interface.
func (e *expiries) Pop() any {
	last := len(*e) - 1
	t := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return t
}

// expire ends the tickets whose time is over, and renews the records of what others have left.
func (p *Pool) expire(now time.Duration) {
	ts := p.tickets
	for ts != nil && len(ts.due) > 0 && ts.due[0].due() <= now {
		t := ts.due[0]
		if t.waiters > 0 {
			t.sign(now)
		}
		switch {
		case t.Expires > now && t.due() <= now:
			known := t.version
			p.note(now, t)
			t.version = min(t.version, known) // it promises the holder nothing new, who need not wait for it
		case t.Expires > now:
			heap.Fix(&ts.due, t.index)
		case t.ends > 0 && t.ends <= now:
			p.endTicket(t, admission.EndHoldMax)
		default:
			p.endTicket(t, admission.EndExpired)
		}
	}
}

func (p *Pool) nextExpiry() time.Duration {
	if p.tickets == nil || len(p.tickets.due) == 0 {
		return 0
	}
	return max(p.tickets.due[0].due(), 1)
}

func (p *Pool) endTicket(t *Ticket, how admission.Ending) {
	p.tickets.remove(t, how)
	p.fx.Ended = append(p.fx.Ended, t)
	p.fx.Moved = true
}
