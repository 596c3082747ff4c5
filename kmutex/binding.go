package kmutex

// Binding is when and to what the coordinator ties a ticket: the part in which
// the paper's algorithm (early) and ours (late) differ. A machine owns its
// binding and calls it from Step only. Package coordinator implements it.
type Binding interface {
	// Install drops everything and begins an epoch. Running tickets whose
	// tokens are withheld are not the binding's. After an error nothing has
	// changed.
	Install(self Node, in *Install) error
	// Asks reports whether a further turn may ask for a place in line while
	// this node has turns there, one or more.
	Asks() bool
	// Ask prepares a request for a turn of these tickets, at least one. It
	// returns the seat to put into the request, if any, and how many of the
	// first tickets it has taken over from the turn.
	Ask(tickets []Ticket, fx *Effects) (seat Seat, taken int)
	// Enter grants t a token that idles at this node and that nobody waits
	// for, and reports whether there was one.
	Enter(t Ticket, fx *Effects) bool
	// Assign is called while the baton is here. It takes over as many of the
	// first tickets as it can, and returns their number.
	Assign(tickets []Ticket, fx *Effects) int
	// Depart moves into baton, whose Number is set, what goes with it to next.
	Depart(next Place, baton *Message, fx *Effects)
	// CheckBaton tells why a correct coordinator cannot have sent this baton.
	CheckBaton(baton *Message) error
	// Arrive takes from baton what came with it.
	Arrive(baton *Message, fx *Effects)
	// Free takes back the token of a ticket that has ended.
	Free(q Token, fx *Effects)
	// Cancel ends a waiting ticket that Ask or Assign has taken over, and
	// reports whether there was one.
	Cancel(t Ticket) bool
	// Receive handles the messages child, token and where. An error means that
	// a correct peer cannot have sent m; nothing has changed then.
	Receive(m *Message, fx *Effects) error
	// Waiting appends the waiting tickets that the binding has taken over, in
	// ascending order.
	Waiting(ts []Ticket) []Ticket
	// FreeHere returns the tokens that are at this node and nobody uses, and how
	// many of them stay here because there are more than k, see [Install.Excess].
	FreeHere() (free TokenSet, kept int)
	// Export fills in the binding's part of s.
	Export(s *State)
	// Clone returns a deep copy.
	Clone() Binding
}

// Place is a turn of another node, as the turn before it in line knows it.
type Place struct {
	Node Node
	// Seat that the turn's first ticket has taken (early binding).
	Seat Seat
}

// IsZero reports whether p is no place.
func (p Place) IsZero() bool { return p == Place{} }
