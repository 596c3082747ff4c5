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
	// Batches of this node in the line. Together they hold each request that the
	// node had reported as waiting, and the requests that it takes over. Only the
	// last batch of the last in line is open.
	Batches []Batch
	// Running requests of this node: those that it had reported, and slots that it
	// takes over.
	Running []Grant
	// Free tokens that begin here: with the baton, or at a node in Resting (late
	// binding); idle in the seats that [SeatOf] gives (early binding).
	Free TokenSet
	// Resting names the nodes where tokens may rest when the epoch begins (late
	// binding): nobody waits for them. Elsewhere, those that run go to home when
	// they are released.
	Resting []Node `json:",omitempty"`
	// Tails, at Holder under early binding, is the last seat of each token's
	// queue; the zero seat for a token that has no queue in this epoch.
	Tails []Seat
	// Tokens that there are in this epoch, at whatever node; nil: not known.
	Tokens TokenSet
	// Withheld tokens of these may still be in use at lost nodes: no request gets one.
	// An adopted slot may have one, and keeps it from everybody when it ends.
	Withheld TokenSet
	// Excess is by how many, class by class, the tokens that run, and those that are withheld,
	// are more than the class's k; nil: by none. So many of the tokens that come back stay where they are
	// collected, and nobody gets one before: at the coordinator (late binding),
	// or at Holder (early binding), which lets the others into the queues that
	// begin there.
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
