package kmutex

import (
	"fmt"
	"strings"
)

// Kind tells the messages of the algorithm apart.
type Kind uint8

// The messages. In brackets the name that the paper gives them.
const (
	// KindRequest looks for the last in line along the parent pointers
	// [request]. It sets Origin, Batch, Seat (early binding) and Hops.
	KindRequest Kind = 1 + iota
	// KindBaton hands over the right to assign tokens [token_locations]. It
	// sets Number, Batch, Counter and Tails (early) or Free, Excess, Serial, Resting and
	// Want (late).
	KindBaton
	// KindChild, early binding only, tells the owner of Seat that Child comes
	// after it in the queue of its token [child]. It sets Seat and Child.
	KindChild
	// KindToken, early binding only, carries a token [token]. It sets Token and
	// Serial, and Seat: the seat that it is for; zero when it goes to the epoch's
	// first coordinator, see [Install.Excess].
	KindToken
	// KindLocate, late binding only, tells home which node holds the baton, or is
	// about to, and how many tokens it needs. It sets Number, Holder and Want.
	KindLocate
	// KindRecall, late binding only, asks for tokens that rest at the receiver, and
	// then at the nodes in Resting. It sets Number, Holder, Want and Resting.
	KindRecall
	// KindTokens, late binding only, carries tokens to baton Number, or to home. It
	// sets Free, Number, Want, Hops, Resting and Serial.
	KindTokens
	// KindOffer, late binding only, carries tokens, or none, along the line to a batch of the
	// receiver: no batch before it can use them. It sets Free, Batch, Serial and Changes. Origin and Other
	// name the batch before the receiver's; if Origin is 0, the receiver's batch is out of the line.
	KindOffer
	// KindSkip, late binding only, tells the node of Batch that nobody waits in the sender's batch
	// Number, which is behind it, and that batch Other of Origin is behind that. It sets Changes, too.
	KindSkip

	kindEnd
)

var kindNames = [kindEnd]string{"?", "request", "baton", "child", "token", "locate", "recall", "tokens", "offer", "skip"}

// Valid reports whether k is one of the kinds above.
func (k Kind) Valid() bool { return k > 0 && k < kindEnd }

// String returns the kind's name in lower case, as metrics and traces show it.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Message is what one node's machine sends another's. Which fields count
// depends on Kind; the others are zero. A message owns its slices: the sender
// keeps no reference to them.
type Message struct {
	Kind Kind
	// Epoch in which the message was sent; set in every message.
	Epoch uint64

	// Origin is the node that asks for a place in line (request), or whose batch Other is (offer,
	// skip).
	Origin Node
	// Hops counts the nodes that have forwarded this message (request, tokens).
	Hops uint32

	// Batch is the number of the asking batch (request), or of the receiver's batch that the
	// message is for (baton, offer, skip). Other is the number of a batch of Origin.
	Batch, Other uint64
	// Changes tells how often the batch before the receiver's (offer), or before Other (skip), has changed.
	Changes uint64
	// Seat: the first seat of the asking batch (request), the seat that gets a
	// child (child), the seat the token is for (token, early binding).
	Seat Seat
	// Child is the seat that follows Seat.
	Child Seat

	// Token that the message carries.
	Token Token
	// Number of a baton: how often it has moved in this epoch. In a skip, the sender's batch that leaves.
	Number uint64
	// Counter is the coordinator's round-robin position over the tokens.
	Counter uint32
	// Tails holds, for each token, the last seat of its queue (early binding).
	Tails []Seat
	// Free holds the tokens that the message carries (late binding).
	Free TokenSet
	// Excess is how many of them, by class, stay with the baton, see [Install.Excess].
	Excess []uint32
	// Want is how many tokens are needed (locate, recall), how many home was asked for and has
	// not sent (baton), or how many tokens of this message home was asked for (tokens).
	Want uint32
	// Resting names nodes where tokens may rest, the oldest first (late binding).
	Resting []Node

	// Serial is the serial of the token's last grant in this epoch (early binding), or the
	// largest serial that the sender knows of (late binding). 0: none yet.
	Serial uint64

	// Holder is the node that holds baton Number or is about to receive it.
	Holder Node

	// Tag is the drivers' own data, sent along with tokens (token, baton). The machine neither
	// sets nor reads it.
	Tag []byte
}

// String formats m for golden traces and error messages.
func (m Message) String() string {
	var b strings.Builder
	b.WriteString(m.Kind.String())
	switch m.Kind {
	case KindRequest:
		fmt.Fprintf(&b, " origin=%d", m.Origin)
		if !m.Seat.IsZero() {
			fmt.Fprintf(&b, " seat=%v", m.Seat)
		}
		fmt.Fprintf(&b, " hops=%d", m.Hops)
	case KindBaton:
		fmt.Fprintf(&b, " number=%d batch=%d counter=%d", m.Number, m.Batch, m.Counter)
		if m.Tails != nil {
			fmt.Fprintf(&b, " tails=%v", m.Tails)
		} else {
			fmt.Fprintf(&b, " free=%v serial=%d", m.Free, m.Serial)
			m.writeDemand(&b)
			if m.Excess != nil {
				fmt.Fprintf(&b, " excess=%v", m.Excess)
			}
		}
	case KindChild:
		fmt.Fprintf(&b, " seat=%v child=%v", m.Seat, m.Child)
	case KindToken:
		fmt.Fprintf(&b, " token=%d", m.Token)
		if !m.Seat.IsZero() {
			fmt.Fprintf(&b, " seat=%v serial=%d", m.Seat, m.Serial)
		}
	case KindLocate, KindRecall:
		fmt.Fprintf(&b, " number=%d holder=%d", m.Number, m.Holder)
		m.writeDemand(&b)
	case KindTokens:
		fmt.Fprintf(&b, " free=%v number=%d serial=%d", m.Free, m.Number, m.Serial)
		m.writeDemand(&b)
		if m.Hops > 0 {
			fmt.Fprintf(&b, " hops=%d", m.Hops)
		}
	case KindOffer:
		fmt.Fprintf(&b, " free=%v batch=%d after=%d.%d changes=%d serial=%d", m.Free, m.Batch, m.Origin, m.Other, m.Changes, m.Serial)
	case KindSkip:
		fmt.Fprintf(&b, " batch=%d leaves=%d next=%d.%d changes=%d", m.Batch, m.Number, m.Origin, m.Other, m.Changes)
	default:
	}
	return b.String()
}

func (m *Message) writeDemand(b *strings.Builder) {
	if m.Want > 0 {
		fmt.Fprintf(b, " want=%d", m.Want)
	}
	if len(m.Resting) > 0 {
		fmt.Fprintf(b, " resting=%v", m.Resting)
	}
}

// Envelope is a message on its way: From is the sending node, To the
// addressed one.
type Envelope struct {
	From, To Node
	Message  Message
}

// String formats e for golden traces.
func (e Envelope) String() string {
	return fmt.Sprintf("%d->%d %v", e.From, e.To, e.Message)
}
