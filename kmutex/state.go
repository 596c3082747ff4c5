package kmutex

import "slices"

// State is a copy of everything a machine knows, for invariants, snapshots and
// the people who debug it.
type State struct {
	Self   Node
	Epoch  uint64
	Frozen bool
	K      int
	Home   Node

	// Installed is the epoch that last began here, 0: none. Tokens are all tokens of that
	// epoch, nil: not known; the Withheld among them are at no living node.
	Installed uint64
	Tokens    TokenSet
	Withheld  TokenSet
	// Classes of the tokens, nil: all are alike. Excess is the epoch's [Install.Excess]; nil at
	// a newcomer.
	Classes []TokenSet
	Excess  []uint32

	Parent  Node
	Batches []Batch
	Pending []Request
	// Offered tokens rest at the last batch of the line, whose node could not use them.
	// Retrying: the retry interval is running.
	Offered  TokenSet
	Retrying bool
	// Barred tokens cannot be used here (late binding).
	Barred  TokenSet
	Asked   bool
	Running []Grant
	Baton   bool
	Number  uint64
	// Deferred events and Arrived requests wait for the next Install.
	Deferred []Event
	Arrived  []Request

	// Counter, at the coordinator, is its round-robin position.
	Counter uint32

	// Free tokens rest here; at the coordinator they are with the baton. Back are the running
	// tokens that go home when they are released (late binding).
	Free, Back TokenSet
	// Kept tokens came back to the epoch's first coordinator (early binding).
	Kept TokenSet
	// Serial is the largest serial that this node knows of (late binding).
	Serial uint64
	// Parked tokens wait for a baton (late binding).
	Parked []Parcel
	// Where the baton is, as far as this node knows (late binding).
	Where Location
	// Resting names, at the coordinator, the nodes where tokens may rest; Due is how
	// many tokens home was asked for and has not sent (late binding).
	Resting []Node
	Due     int
	// Stock, at home, are the returned tokens that no coordinator has asked for; Wanted is how
	// many tokens home owes the baton that Where names (late binding).
	Stock  TokenSet
	Wanted int

	// Tails, at the coordinator (early binding).
	Tails []Seat
	// Seats of this node, by serial (early binding).
	Seats []SeatState
}

// Parcel is a message's tokens that wait at a node for baton Number. Want and Resting are the
// message's.
type Parcel struct {
	Free    TokenSet
	Number  uint64
	Want    uint32
	Resting []Node
}

// Location says that Holder had, or is to have, baton Number.
type Location struct {
	Number uint64
	Holder Node
}

// SeatState is one place in a token's queue.
type SeatState struct {
	Serial uint64
	// Request that sits here; 0: its request has ended.
	Request Request
	// Token at this seat, running or idle; NoToken: still to come.
	Token Token
	// Last is the serial of the last grant of Token in this epoch; 0: none.
	Last uint64
	// Child is the seat that the token goes to next; zero: none known.
	Child Seat
}

// State returns a copy of the machine's state.
func (m *Machine) State() State {
	s := State{
		Self: m.self, Epoch: m.epoch, Frozen: m.frozen, K: m.k, Home: m.home,
		Installed: m.installed, Tokens: m.tokens.Clone(), Withheld: m.withheld.Clone(), Classes: cloneSets(m.classes), Excess: slices.Clone(m.excess),
		Parent: m.parent, Batches: cloneBatches(m.batches), Pending: slices.Clone(m.pending),
		Offered: m.offered.Clone(), Retrying: m.retrying, Asked: m.asked, Running: slices.Clone(m.running), Baton: m.baton, Number: m.number,
		Deferred: slices.Clone(m.deferred), Arrived: slices.Clone(m.arrived),
	}
	m.binding.Export(&s)
	return s
}

// Clone returns a machine that shares nothing with m.
func (m *Machine) Clone() *Machine {
	c := *m
	c.binding = m.binding.Clone()
	c.batches = cloneBatches(m.batches)
	c.pending, c.offered = slices.Clone(m.pending), m.offered.Clone()
	c.running = slices.Clone(m.running)
	c.deferred, c.arrived = slices.Clone(m.deferred), slices.Clone(m.arrived)
	c.fx = Effects{}
	return &c
}

func cloneSets(sets []TokenSet) []TokenSet {
	c := slices.Clone(sets)
	for i := range c {
		c[i] = c[i].Clone()
	}
	return c
}

func cloneBatches(batches []Batch) []Batch {
	c := slices.Clone(batches)
	for i := range c {
		c[i].Requests = slices.Clone(c[i].Requests)
	}
	return c
}

// Coordinator reports whether the baton is at this node.
func (m *Machine) Coordinator() bool { return m.baton }

// BatonNumber returns the number of the newest baton of this epoch that has been at
// this node: it grows with each move.
func (m *Machine) BatonNumber() uint64 { return m.number }

// Spreads reports whether the pool's free tokens may begin an epoch at any node, see
// [EpochChange.Spread].
func (m *Machine) Spreads() bool { return m.binding.Spreads() }

// Frozen reports whether the machine waits for an Install.
func (m *Machine) Frozen() bool { return m.frozen }

// FreeHere returns how many tokens at this node may be granted: free with the baton, parked, or
// idle in seats. Tokens beyond k do not count.
func (m *Machine) FreeHere() int {
	free, kept := m.binding.FreeHere()
	return free.Len() - kept + m.offered.Len()
}

// TokensHere returns how many tokens are at this node, in use or not. Withheld tokens do not
// count, since a lost node may still use them; nor, while the node is frozen, do free tokens, which
// the next epoch may give to other nodes.
func (m *Machine) TokensHere() int {
	n := 0
	for _, g := range m.running {
		if g.Token >= 0 && !m.withheld.Has(g.Token) {
			n++
		}
	}
	if !m.frozen {
		free, _ := m.binding.FreeHere()
		n += free.Len() + m.offered.Len()
	}
	return n
}

// Holdings returns the tokens at this node: the grants of its requests in the critical section,
// and the free tokens.
func (m *Machine) Holdings() (running []Grant, free TokenSet) {
	free, _ = m.binding.FreeHere()
	free.AddAll(m.offered)
	return slices.Clone(m.running), free
}
