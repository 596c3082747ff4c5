package gateway

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
)

// claim is a request's or a ticket's claim on a slot: first in line, then in the
// critical section. The pool's lock guards it.
type claim struct {
	client *client // nil if the pool does not distinguish clients
	since  time.Time
	// owner and number name it for good.
	owner  kmutex.Node
	number uint64
	info   *admission.RequestInfo // nil: nothing is known

	request kmutex.Request // 0: it waits for a place in line
	placed  time.Time      // when its place was taken
	state   claimState
	// released says that a Slot's Release was called, or its wait ended without a grant.
	released atomic.Bool
	grant    kmutex.Grant
	at       time.Time // when it was granted here
	// founded says when the cluster was, for the fence.
	founded int64
	err     error         // why the wait ended without a grant
	ready   chan struct{} // closed when the wait is over; nil if it never began
	ticket  *pool.Ticket  // whose slot it is; nil: a request's
	span    string        // see admission.Request
	// counted is for how long of its hold its client has been charged, and owes its part in what that owes.
	counted time.Duration
	owes    float64
	// holder is told of a loss; nil: nobody is, or it was told.
	holder admission.Holder
	// given is how it was granted. Unlike grant it does not change.
	given admission.GrantInfo
}

type claimState uint8

const (
	slotWaiting claimState = iota
	slotGranted
	slotEnded
	slotLost // with its incarnation, but its holder has not ended yet
)

// hold notes the grant, of an epoch. After is the span of the token's last holder.
func (s *claim) hold(g kmutex.Grant, epoch uint64, after string) {
	s.state, s.grant = slotGranted, g
	s.given.Token, s.given.Epoch, s.given.Serial, s.given.After = int(g.Token), epoch, g.Serial, after
}

// wake ends the wait.
func (s *claim) wake() {
	if s.ready != nil {
		close(s.ready)
	}
}

// id names a slot: POOL.NODE.NUMBER.
func (s *claim) id(pool string) string {
	return fmt.Sprintf("%s.%d.%d", pool, s.owner, s.number)
}

// fence is Slot.Fence. It needs no lock once the claim is granted.
func (s *claim) fence(pool string) string {
	b := make([]byte, 0, len(pool)+40)
	b = append(append(b, pool...), '/')
	b = append(strconv.AppendInt(b, s.founded, 10), '/')
	b = append(strconv.AppendUint(b, s.given.Epoch, 10), '/')
	return string(strconv.AppendUint(b, s.given.Serial, 10))
}
