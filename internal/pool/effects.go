package pool

import (
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Effects is what an event asks of the driver, to be carried out in the order of
// the fields. It stays valid until the pool's next event.
type Effects struct {
	// Adopted tickets are in the machine from now on.
	Adopted []Adopted
	// Messages to send. They own their slices.
	Messages []kmutex.Envelope
	// Grants are the tickets that are in the critical section from now on.
	Grants []kmutex.Grant
	// AskTimer asks for one kmutex.EventAskDue after the ask interval, in place of
	// any that was asked for before.
	AskTimer bool
	// Trace tells what moved in the machine, in order.
	Trace []kmutex.Trace
	// Letters to send. They share slices with the pool, which does not change
	// them any more.
	Letters []Letter
	// ChangeEpoch, if it is not 0, asks the cluster to end this epoch.
	ChangeEpoch uint64
	// Spread: the next epoch is asked for only to spread the free tokens.
	Spread bool
	// Whole: the next epoch is asked for because no more than K tokens are in use, after
	// K was lowered.
	Whole bool
	// WakeAt, if it is not 0, is when to call [Pool.Wake], in place of any time
	// before.
	WakeAt time.Duration
	// Begun: an epoch has begun so. What goes before belongs to it already; of the epoch
	// before the driver keeps nothing from now on.
	Begun *kmutex.Install
	// Gone are tickets that had slots and have none in the epoch that has begun; the
	// machine does not know them.
	Gone []*Ticket
	// Moved: a ticket's state may have changed, or its holder may be told of it now.
	Moved bool
	// Doubled tokens were in use by two tickets as the epoch was planned: a defect.
	Doubled []kmutex.Token
	// Faulty tokens were found to be lost or doubled by several counts in a row.
	Faulty []kmutex.Token
	// Unknown are lost gateways whose tickets nobody knows. Their tokens are
	// withheld until every slot that they can have given out has run out.
	Unknown []kmutex.Node
	// Err says why an epoch could not be planned or begun here.
	Err error
	// Ended tickets: their slots are given back, their places in line given up.
	Ended []*Ticket
}

func (fx *Effects) reset() {
	*fx = Effects{
		Adopted: fx.Adopted[:0], Messages: fx.Messages[:0], Grants: fx.Grants[:0], Gone: fx.Gone[:0], Ended: fx.Ended[:0],
		Trace: fx.Trace[:0], Letters: fx.Letters[:0],
	}
}

// Letter is what two gateways' parts of a pool tell each other beside the
// machine's messages. One of the pointers is set.
type Letter struct {
	To     kmutex.Node              `json:"-"`
	Report *replication.EpochReport `json:",omitempty"`
	Answer *replication.EpochAnswer `json:",omitempty"`
	Count  *Count                   `json:",omitempty"`
	Tokens *Holdings                `json:",omitempty"`
	Push   *replication.Push        `json:",omitempty"`
	Ack    *replication.Ack         `json:",omitempty"`

	tries int // that failed
}

// Again reports that the letter has failed to arrive before.
func (l *Letter) Again() bool { return l.tries > 0 }
