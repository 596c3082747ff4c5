package pool

import (
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Effects is what an event asks of the driver, to carry out in the order of
// the fields. It stays valid until the pool's next event.
type Effects struct {
	// Adopted tickets are in the machine from now on.
	Adopted []Adopted
	// Messages to send. They own their slices.
	Messages []kmutex.Envelope
	// Grants are the tickets that are in the critical section from now on.
	Grants []kmutex.Grant
	// AskTimer asks for one kmutex.EventAskDue after the ask interval, in place of any
	// timer before.
	AskTimer bool
	// Trace tells what moved in the machine, in order.
	Trace []kmutex.Trace
	// Letters to send. They share slices with the pool, which does not change
	// them any more.
	Letters []Letter
	// ChangeEpoch asks the cluster to end this epoch; 0: nothing is asked.
	ChangeEpoch uint64
	// Spread: the only reason for the next epoch is to spread the free tokens.
	Spread bool
	// Whole: the reason for the next epoch is that no more than K tokens are in use, after
	// K was lowered.
	Whole bool
	// WakeAt is when to call [Pool.Wake], in place of any time before; 0: no change.
	WakeAt time.Duration
	// Begun: an epoch has begun with this event. The effects above belong to it already;
	// the driver forgets what it kept for the epoch before.
	Begun *kmutex.Install
	// Gone are tickets that had slots and have none in the epoch that has begun; the
	// machine does not know them.
	Gone []*Ticket
	// Moved: a ticket's state may have changed, or may be shown to its holder now.
	Moved bool
	// Doubled tokens were in use by two tickets as the epoch was planned: a defect.
	Doubled []kmutex.Token
	// Faulty tokens were found to be lost or doubled by several counts in a row.
	Faulty []kmutex.Token
	// Unknown are lost gateways whose tickets no gateway knows. Their tokens are withheld
	// until every slot that they can have granted has run out.
	Unknown []kmutex.Node
	// Err says why an epoch could not be planned or begun here.
	Err error
	// Ended tickets: their slots are given back, their places in line given up.
	Ended []*Ticket
}

func (fx *Effects) reset() {
	fx.Adopted, fx.Messages, fx.Grants, fx.Trace = fx.Adopted[:0], fx.Messages[:0], fx.Grants[:0], fx.Trace[:0]
	fx.Letters, fx.Gone, fx.Ended = fx.Letters[:0], fx.Gone[:0], fx.Ended[:0]
	fx.Doubled, fx.Faulty, fx.Unknown, fx.Begun, fx.Err = nil, nil, nil, nil, nil
	fx.AskTimer, fx.Spread, fx.Whole, fx.Moved, fx.ChangeEpoch, fx.WakeAt = false, false, false, false, 0, 0
}
