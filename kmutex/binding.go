package kmutex

// Binding decides when the coordinator binds a request, and to what: the part in
// which the paper's algorithm (early) and ours (late) differ. A machine owns its
// binding and calls it from Step only. Package coordinator implements it.
type Binding interface {
	// Install drops everything and begins an epoch. Running requests whose
	// tokens are withheld are not the binding's. After an error nothing has
	// changed.
	Install(self Node, in *Install) error
	// Spreads reports whether free tokens may begin an epoch at any node, see
	// [EpochChange.Spread].
	Spreads() bool
	// Asks reports whether a further batch may ask for a place in line while
	// this node has batches there, one or more.
	Asks() bool
	// Ask prepares the Request message for a batch of these requests, at least
	// one. It returns the seat to put into the message, if any, and how many of
	// the first requests it has taken over from the batch.
	Ask(requests []Request, fx *Effects) (seat Seat, taken int)
	// Enter grants t an idle token of this node that no other request waits for, and
	// reports whether there was such a token.
	Enter(t Request, fx *Effects) bool
	// Assign is called while the baton is here. It takes over as many of the
	// first requests as it can, and returns their number.
	Assign(requests []Request, fx *Effects) int
	// Depart fills in baton, whose Number is set, with what goes along to the batch next.
	// waited: next stood behind a batch of this node; else it has just asked.
	Depart(next Place, waited bool, baton *Message, fx *Effects)
	// CheckBaton returns why a correct coordinator cannot have sent this baton.
	CheckBaton(baton *Message) error
	// Arrive takes over the tokens and the bookkeeping that came with baton.
	Arrive(baton *Message, fx *Effects)
	// Free takes back the token of a request that has ended.
	Free(q Token, fx *Effects)
	// Bar sets the tokens that this node cannot use from now on, and reports whether the set
	// has changed.
	Bar(barred TokenSet) bool
	// Shed takes from what the coordinator may assign the tokens that this node cannot use.
	Shed() TokenSet
	// Offer sends tokens, or none, to the batch next of another node. before is the batch before it.
	Offer(next, before Place, set TokenSet, fx *Effects)
	// TakeOffer notes the serial in the offer m. An error means that a correct peer cannot have
	// sent m; nothing has changed then.
	TakeOffer(m *Message) error
	// Use grants t the token q, which was offered, and reports false if this node cannot use q.
	Use(t Request, q Token, fx *Effects) bool
	// Return gives up tokens that were offered: to the baton, if that is here, else to home.
	Return(set TokenSet, fx *Effects)
	// Cancel ends a waiting request that Ask or Assign has taken over, and
	// reports whether there was one.
	Cancel(t Request) bool
	// Receive handles the messages child, token, locate, recall and tokens. An error means that
	// a correct peer cannot have sent m; nothing has changed then.
	Receive(m *Message, fx *Effects) error
	// Waiting appends the waiting requests that the binding has taken over, in
	// ascending order.
	Waiting(ts []Request) []Request
	// FreeHere returns the tokens that are at this node and nobody uses, and how
	// many of them stay here because there are more than k, see [Install.Excess].
	FreeHere() (free TokenSet, kept int)
	// Export fills in the binding's part of s.
	Export(s *State)
	// Clone returns a deep copy.
	Clone() Binding
}

// Place is a batch, as a neighbour in the line knows it.
type Place struct {
	Node Node
	// Batch is the batch's number at that node.
	Batch uint64
	// Seat that the batch's first request has taken (early binding).
	Seat Seat
	// Changes tells how often the batch before the later one of both has changed (late binding).
	Changes uint64
}

// IsZero reports whether p is no place.
func (p Place) IsZero() bool { return p == Place{} }
