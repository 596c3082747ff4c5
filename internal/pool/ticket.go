package pool

import (
	"errors"
	"time"

	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/kmutex"
)

// errCall: no correct gateway sends such a name.
var errCall = errors.New("the call's name is empty or too long")

// Ticket is a place in line, and then a slot, that outlives its gateway. Its driver reads
// it, and changes it only before [Pool.Keep].
type Ticket struct {
	// ID is a secret, see [replication.NewID].
	ID string
	// TTL is how long it lives without a sign of its holder.
	TTL time.Duration
	// HoldMax is how long it may keep its slot; 0: as long as it lives.
	HoldMax time.Duration
	// Stamp is when it arrived, by the wall clock in nanoseconds.
	Stamp int64
	// Note says who asked, for people. Client is whose tickets it counts among; empty:
	// nobody's.
	Note, Client string
	// Granted: it has a slot, with this Grant since Epoch.
	Granted bool
	Grant   kmutex.Grant
	Epoch   uint64
	// UsedBy names the call whose request has or had the slot; no other call may use it.
	// Empty: no request has used it.
	UsedBy string
	// Expires is when it ends without a further sign of its holder. That is later than its
	// holder may rely on it, see [Ticket.Left].
	Expires time.Duration

	adopted bool          // it was another gateway's
	silent  bool          // and its holder has given no sign since
	noteAt  time.Duration // when the record of what it has left is renewed; 0: never

	ends    time.Duration // its slot, at the latest; 0: never
	endsAt  int64         // the same by the wall clock
	version uint64        // that has to be synced before the holder may know
	waiters int           // calls of the holder that wait
	index   int           // in Tickets.due
}

// Adopted is a ticket that this gateway has taken over from a lost one, as request Number.
type Adopted struct {
	Ticket *Ticket
	Number kmutex.Request
}

// Left returns the term, in the sense of package drift, that t's holder is promised
// without a further sign: its time to live, or less where the end of its hold is near.
func (t *Ticket) Left(now time.Duration) time.Duration {
	return min(t.TTL, drift.Term(t.Expires-now, closeTime))
}

// noteEvery is how often the record of what a ticket has left is renewed. A loss of its gateway
// gives an abandoned ticket no more than that, and the time until it has been taken over.
const noteEvery = time.Second

// due is when something happens to t without an event.
func (t *Ticket) due() time.Duration {
	if t.noteAt > 0 {
		return min(t.noteAt, t.Expires)
	}
	return t.Expires
}

// sign notes a sign of t's holder. It never shortens the time that t has already.
func (t *Ticket) sign(now time.Duration) {
	t.silent = false
	t.Expires = max(t.Expires, now+KeepFor(t.TTL))
	if t.ends > 0 {
		t.Expires = min(t.Expires, t.ends)
	}
}
