package pool

import (
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// View is what the agreed view says about one pool. It does not change after
// [Pool.Follow] was given it.
type View struct {
	// Members in ascending order.
	Members []kmutex.Node
	// Newest is the youngest node that the view tells of, present or lost. A
	// message to a younger one waits for the view that has it.
	Newest kmutex.Node

	// K is the number of tokens.
	K int
	// Left: there may be more tokens than K, and it matters how many there are.
	Left bool
	// Epoch of the pool, from 1.
	Epoch uint64
	// Began: members up to this node form the epoch, younger ones join it.
	Began kmutex.Node
	// Home plans the epoch.
	Home kmutex.Node
	// Owed: lost gateways may still run tickets.
	Owed bool

	// Tickets: the pool gives some out. What follows counts only then.
	Tickets bool
	// Successors of this gateway on the ring keep replicas of its tickets.
	Successors []kmutex.Node
	// Lost gateways that may have left tickets, and Gone all that the view knows of.
	Lost []replication.Lost
	Gone []kmutex.Node
	// Witnessed reports whether this gateway must have a replica of whatever a lost one told the
	// holders of tickets, see [replication.Witnessed]; nil: of none.
	Witnessed func(lost kmutex.Node) bool
	// Wait is how long a gateway that was taken out may go on as if it had not.
	Wait time.Duration
}

// closeTime is how long a request that is broken off at the end of its slot may take
// to be gone.
const closeTime = 150 * time.Millisecond

// KeepFor is how long a ticket lives after a sign of its holder, by its gateway's clock,
// so that the holder can rely on it for a term, its time to live.
func KeepFor(term time.Duration) time.Duration { return drift.Keep(term, closeTime) }

// UnknownFor is how long the tokens of a lost gateway are withheld whose tickets
// nobody knows, by any gateway's clock, from when that is known.
func (v *View) UnknownFor() time.Duration { return v.Wait + KeepFor(admission.MaxTTL) }

func (v *View) gone(n kmutex.Node) bool { return slices.Contains(v.Gone, n) }

// joins reports whether node n has nothing to report as the epoch begins: nobody
// had the pool before its first epoch, and a younger node was not there.
func (v *View) joins(n kmutex.Node) bool { return v.Epoch == 1 || n > v.Began }

// founders are the members that form the epoch.
func (v *View) founders() []kmutex.Node {
	return slices.DeleteFunc(slices.Clone(v.Members), func(n kmutex.Node) bool { return n > v.Began })
}

func (v *View) epochChange(spread bool) kmutex.EpochChange {
	return kmutex.EpochChange{Epoch: v.Epoch, K: v.K, Home: v.Home, Owed: v.Owed, Spread: spread}
}
