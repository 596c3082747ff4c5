package gateway

import (
	"fmt"
	"strconv"
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
	// position among those that waited here when it asked.
	position int
	// owner and number name it for good.
	owner  kmutex.Node
	number uint64
	info   *admission.RequestInfo // nil: nothing is known

	request kmutex.Request // 0: it waits for a place in line
	placed  time.Time      // when its place was taken
	state   claimState
	grant   kmutex.Grant
	at      time.Time // when it was granted here
	epoch   uint64    // in which it was granted
	// founded says when the cluster was, for the fence.
	founded int64
	err     error         // why the wait ended without a grant
	ready   chan struct{} // closed when the wait is over; nil if it never began
	abort   func()        // see Slot.OnLost; nil once it is called
	ticket  *pool.Ticket  // whose slot it is; nil: a request's
	span    string        // see admission.Request
	after   string        // see admission.GrantInfo
}

type claimState uint8

const (
	slotWaiting claimState = iota
	slotGranted
	slotEnded
	slotLost // with its incarnation, but its holder has not ended yet
)

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

// fence is Slot.Fence.
func (s *claim) fence(pool string) string {
	b := make([]byte, 0, len(pool)+40)
	b = append(append(b, pool...), '/')
	b = append(strconv.AppendInt(b, s.founded, 10), '/')
	b = append(strconv.AppendUint(b, s.epoch, 10), '/')
	return string(strconv.AppendUint(b, s.grant.Serial, 10))
}

// grantInfo describes how the slot was granted.
func (s *claim) grantInfo() admission.GrantInfo {
	return admission.GrantInfo{Position: s.position, Token: int(s.grant.Token), Epoch: s.epoch, Serial: s.grant.Serial, After: s.after}
}

// takeAbort returns what tells the holder that the slot is lost, for one call; nil if
// there is nothing to call.
func (s *claim) takeAbort() (abort func()) {
	abort, s.abort = s.abort, nil
	return abort
}
