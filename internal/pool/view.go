package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// View is what the agreed view says about one pool. It must not change after
// [Pool.Follow].
type View struct {
	// Members in ascending order.
	Members []kmutex.Node
	// Newest is the youngest node that the view knows, present or lost. A message to a
	// younger one waits for a view that has it.
	Newest kmutex.Node

	// K is the number of tokens. Classes have it by class; nil: all tokens are alike.
	K       int
	Classes []kmutex.Class
	// Left: more tokens than K, or of a class than its K, may be in use, and their number
	// matters.
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
	// Lost gateways that may have left tickets. Gone are all lost ones that the view knows.
	Lost []replication.Lost
	Gone []kmutex.Node
	// Witnessed reports whether this gateway must have a replica of every ticket that a
	// lost one showed its holder, see [replication.Witnessed]; nil: of none.
	Witnessed func(lost kmutex.Node) bool
	// Missed reports whether a gateway may have shown holders of tickets something while this one
	// was no member, before this incarnation, see [replication.Missed]; nil: none has.
	// kept tells which incarnations have left their tables with the replicas.
	Missed func(owner kmutex.Node, kept func(kmutex.Node) bool) bool
	// MaxTTL is the longest time to live of tickets that the pool's gateways take; 0:
	// [admission.MaxTTL].
	MaxTTL time.Duration
	// Wait is how long a gateway that was removed may go on as if it were a member.
	Wait time.Duration
}

// closeTime is how long a request that is aborted at the end of its slot may take to end.
const closeTime = 150 * time.Millisecond

// KeepFor is how long a gateway keeps a ticket after a sign of its holder, by the gateway's
// clock, so that the holder can rely on it for a term, its time to live.
func KeepFor(term time.Duration) time.Duration { return drift.Keep(term, closeTime) }

// UnknownFor is how long the tokens of a lost gateway are withheld if no gateway knows its
// tickets, by any gateway's clock, from when that was found.
func (v *View) UnknownFor() time.Duration {
	return v.Wait + KeepFor(cmp.Or(v.MaxTTL, admission.MaxTTL))
}

func (v *View) gone(n kmutex.Node) bool { return slices.Contains(v.Gone, n) }

// joins reports whether node n has nothing to report as the epoch begins: in the first
// epoch nobody has, nor has a node that is younger than its founders.
func (v *View) joins(n kmutex.Node) bool { return v.Epoch == 1 || n > v.Began }

// founders are the members that form the epoch.
func (v *View) founders() []kmutex.Node {
	return slices.DeleteFunc(slices.Clone(v.Members), func(n kmutex.Node) bool { return n > v.Began })
}

func (v *View) epochChange(spread bool) kmutex.EpochChange {
	return kmutex.EpochChange{Epoch: v.Epoch, K: v.K, Classes: v.Classes, Home: v.Home, Owed: v.Owed, Spread: spread}
}
