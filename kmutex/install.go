package kmutex

// Install is how one node begins an epoch of a pool.
type Install struct {
	Epoch uint64
	// K is the number of tokens, Classes their classes; nil: all are alike.
	K       int
	Classes []TokenSet `json:",omitempty"`
	// Home is the pool's home in this epoch.
	Home Node
	// Holder is the node at which the baton begins.
	Holder Node
	// Parent points toward the last in line; 0 at the last in line itself.
	Parent Node
	// Batches of this node in the line. Together they hold the requests that the node reported
	// as waiting and the waiting requests that it adopts. Only the last batch of the last in
	// line is open.
	Batches []Batch
	// Running requests of this node: the requests that it reported, and the slots that it
	// adopts.
	Running []Grant
	// Free tokens that begin here: with the baton, or at a node in Resting (late
	// binding); idle in the seats that [SeatOf] gives (early binding).
	Free TokenSet
	// Resting names the nodes where tokens may rest when the epoch begins, because no request
	// waits for them (late binding). At any other node a running token goes home when it is
	// released.
	Resting []Node `json:",omitempty"`
	// Tails, at Holder under early binding, is the last seat of each token's
	// queue; the zero seat for a token that has no queue in this epoch.
	Tails []Seat
	// Tokens are all tokens of this epoch, at any node; nil: not known.
	Tokens TokenSet
	// Withheld are the tokens that may still be in use at lost nodes: no request gets one. An
	// adopted slot may have one; when the slot ends, the token stays withheld.
	Withheld TokenSet
	// Excess counts, class by class, the running and withheld tokens beyond the class's k; nil:
	// there are none. That many of the tokens that come back are kept, and no request gets a
	// token before: at the coordinator (late binding), or at Holder (early binding), which puts
	// the rest into the queues that begin there.
	Excess []uint32 `json:",omitempty"`
}

// grantable reports whether every token of set may be granted in the epoch.
func (in *Install) grantable(set TokenSet) bool {
	if in.Classes == nil {
		return set.Below(in.K)
	}
	set = set.Clone()
	for _, class := range in.Classes {
		set.RemoveAll(class)
	}
	return set.Len() == 0
}

// SeatOf returns the seat in which token q of node n begins an epoch, idle or
// running.
func SeatOf(n Node, q Token) Seat { return Seat{Node: n, Serial: uint64(q) + 1} }

// Genesis returns how node self enters an epoch in which none of its requests run or wait:
// epoch 1, in which home begins with the baton and all tokens; or, as a newcomer, a later
// one.
func Genesis(c EpochChange, self Node) *Install {
	in := &Install{Epoch: c.Epoch, K: c.K, Classes: c.sets(), Home: c.Home, Holder: c.Home}
	all := c.first()
	if c.Epoch == 1 || self == c.Home {
		in.Tokens = all
	}
	if self != c.Home {
		in.Parent = c.Home
		return in
	}
	in.Free = all.Clone()
	if c.Classes == nil {
		in.Tails = make([]Seat, c.K)
		for q := range in.Tails {
			in.Tails[q] = SeatOf(c.Home, Token(q))
		}
	}
	return in
}
