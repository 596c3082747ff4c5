package replication

import (
	"cmp"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// Bounds.
const (
	// MaxUsedBy bounds the name of a call, in bytes.
	MaxUsedBy = 64
	// MaxRecords bounds the tickets that one gateway takes in for one pool.
	MaxRecords = 100_000
	// maxHeld bounds a table together with what it has absorbed.
	maxHeld = 10 * MaxRecords
)

// Errors.
var (
	// errFull: the table holds as many tickets as it may.
	errFull = errors.New("replication: too many tickets")
	// errInvalid: no correct gateway sends this.
	errInvalid = errors.New("replication: invalid")
	// ErrGap: the change does not follow the replica's version, which the acknowledgement tells.
	ErrGap = errors.New("replication: changes are missing before this one")
)

// Record is the part of a ticket that outlives its gateway.
type Record struct {
	// ID is unguessable, see [NewID].
	ID string `json:"id"`
	// Stamp is the time of arrival in nanoseconds of Unix time. It orders the
	// line after a recovery, and nothing else.
	Stamp int64 `json:"stamp"`
	// TTL is how long the ticket lives after its holder's last sign. Signs are
	// not replicated: a successor gives the ticket a whole TTL, except for Left.
	TTL time.Duration `json:"ttl"`
	// Left is how much longer the ticket would have lived when its owner wrote this, and
	// HoldLeft how much longer its hold could have lasted; 0: not known. An owner writes Left
	// only if it has promised the holder no more: it is about to leave in order and writes each
	// sign, or it has taken the ticket over and the holder gave no sign since.
	Left     time.Duration         `json:"left,omitempty"`
	HoldLeft time.Duration         `json:"hold_left,omitempty"`
	State    admission.TicketState `json:"state"`
	// Token and Fence of a granted ticket.
	Token kmutex.Token `json:"token,omitempty"`
	Fence Fence        `json:"fence,omitzero"`
	// HoldMax is how long the ticket may keep its slot; 0: for as long as it is renewed. Ends is
	// when HoldMax is over, in nanoseconds of Unix time; 0: not granted, or no HoldMax.
	HoldMax time.Duration `json:"hold_max,omitempty"`
	Ends    int64         `json:"ends,omitempty"`
	// Used: a request is, or was, in flight on the slot; a second one is refused.
	Used bool `json:"used,omitempty"`
	// UsedBy names the call that set Used, so that the call may be repeated if its answer was
	// lost. It is a secret between gateways.
	UsedBy string `json:"used_by,omitempty"`
	// Note is the holder's free text, for people.
	Note string `json:"note,omitempty"`
}

// Fence numbers the uses of a pool's tokens: a later use of a token has a greater fence.
type Fence struct {
	Epoch  uint64 `json:"epoch"`
	Serial uint64 `json:"serial"`
}

// less reports whether f is older than g.
func (f Fence) less(g Fence) bool {
	return f.Epoch < g.Epoch || f.Epoch == g.Epoch && f.Serial < g.Serial
}

// Validate returns why no correct gateway writes r.
func (r *Record) Validate() error {
	if _, err := ParseID(r.ID); err != nil {
		return err
	}
	switch {
	case r.State != admission.TicketWaiting && r.State != admission.TicketGranted:
		return fmt.Errorf("%w: state %.20q", errInvalid, r.State)
	case r.TTL < admission.MinTTL || r.TTL > admission.MaxTTL:
		return fmt.Errorf("%w: ttl %v", errInvalid, r.TTL)
	case r.HoldMax < 0 || r.Ends < 0 || r.Left < 0 || r.HoldLeft < 0:
		return fmt.Errorf("%w: hold_max %v, ends %d, left %v and %v", errInvalid, r.HoldMax, r.Ends, r.Left, r.HoldLeft)
	case len(r.Note) > admission.MaxNote || !utf8.ValidString(r.Note):
		return fmt.Errorf("%w: a note of %d bytes", errInvalid, len(r.Note))
	case len(r.UsedBy) > MaxUsedBy || !utf8.ValidString(r.UsedBy) || r.UsedBy != "" && !r.Used:
		return fmt.Errorf("%w: used_by of %d bytes, used %t", errInvalid, len(r.UsedBy), r.Used)
	case r.Token < 0, r.State == admission.TicketWaiting && (r.Token != 0 || r.Fence != Fence{}):
		return fmt.Errorf("%w: token %d, %s", errInvalid, r.Token, r.State)
	}
	return nil
}

func compareArrival(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Stamp, b.Stamp), cmp.Compare(a.ID, b.ID))
}
