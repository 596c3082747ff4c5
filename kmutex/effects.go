package kmutex

import (
	"fmt"
	"slices"
)

// Effects is what a step asks of the driver, to be carried out in the order of
// the fields.
type Effects struct {
	// Report answers EventFreeze.
	Report *Report
	// Messages to send. The sending node never addresses itself.
	Messages []Envelope
	// Grants are the requests that are in the critical section from now on.
	Grants []Grant
	// AskTimer asks for one EventAskDue after the ask interval.
	AskTimer bool
	// RetryTimer asks for one EventRetryDue after the retry interval.
	RetryTimer bool
	// Trace tells what moved, in order.
	Trace []Trace

	self  Node
	epoch uint64
}

// Send adds a message to node to.
func (fx *Effects) Send(to Node, m Message) {
	if to == fx.self || to == 0 {
		panic(fmt.Sprintf("kmutex: node %d sends %v to node %d", fx.self, m, to))
	}
	m.Epoch = fx.epoch
	fx.Messages = append(fx.Messages, Envelope{From: fx.self, To: to, Message: m})
}

// Grant admits request t with token q.
func (fx *Effects) Grant(t Request, q Token, serial uint64) {
	fx.Grants = append(fx.Grants, Grant{Request: t, Token: q, Serial: serial})
	fx.Note(Trace{Kind: TraceGranted, Request: t, Token: q, Number: serial})
}

// Note adds a trace event.
func (fx *Effects) Note(t Trace) { fx.Trace = append(fx.Trace, t) }

// revoke takes back a grant of t that this step has made, so that the driver never hears of a
// request that has ended.
func (fx *Effects) revoke(t Request) {
	fx.Grants = slices.DeleteFunc(fx.Grants, func(g Grant) bool { return g.Request == t })
}

func (fx *Effects) reset() {
	fx.Report = nil
	fx.Messages = fx.Messages[:0]
	fx.Grants = fx.Grants[:0]
	fx.AskTimer, fx.RetryTimer = false, false
	fx.Trace = fx.Trace[:0]
}

// TraceKind tells trace events apart.
type TraceKind uint8

// What can move. In brackets the fields of [Trace] that are set.
const (
	TraceAsked         TraceKind = 1 + iota // a batch asked for its place [Node: asked, Seat, Count: requests]
	TraceForwarded                          // a Request message went on to the parent [Node: origin, Count: hops so far]
	TraceQueued                             // a Request message found the last in line, this node [Node: origin, Count: hops]
	TraceBatonSent                          // [Node: receiver, Number]
	TraceBatonReceived                      // [Node: sender, Number]
	TraceSeated                             // early: a request got a seat [Request, Seat]
	TraceTied                               // early: the coordinator put a seat at the end of a queue [Token, Seat]
	TraceGranted                            // [Request, Token, Number: serial]
	TraceReleased                           // [Request, Token]
	TraceWithheld                           // an adopted slot's token waits until nothing is owed [Token]
	TraceAdopted                            // a request that a lost node left is here now [Request]
	TraceCancelled                          // a waiting request left [Request]
	TraceReturned                           // a request could not use its token and waits again [Request, Token]
	TraceOffered                            // late: a token came that this node could not use [Token, Node: offered next; 0: nobody]
	TraceParked                             // late: a token waits for the baton [Token, Number]
	TraceFrozen                             // [Number: epoch that is to come]
	TraceInstalled                          // [Number: epoch]
	TraceStale                              // a message of an older epoch was dropped [Node: sender]

	traceEnd
)

var traceNames = [traceEnd]string{
	"?", "asked", "forwarded", "queued", "baton-sent", "baton-received", "seated", "tied",
	"granted", "released", "withheld", "adopted", "cancelled", "returned", "offered", "parked", "frozen", "installed", "stale",
}

// String returns the kind's name as golden traces and logs show it.
func (k TraceKind) String() string {
	if k == 0 || k >= traceEnd {
		return fmt.Sprintf("trace(%d)", uint8(k))
	}
	return traceNames[k]
}

// Trace is one thing that moved.
type Trace struct {
	Kind    TraceKind
	Node    Node
	Request Request
	Token   Token
	Seat    Seat
	Number  uint64
	Count   int
}

// String formats t for golden traces.
func (t Trace) String() string {
	switch t.Kind {
	case TraceAsked:
		return fmt.Sprintf("asked node=%d requests=%d", t.Node, t.Count)
	case TraceForwarded, TraceQueued:
		return fmt.Sprintf("%v origin=%d hops=%d", t.Kind, t.Node, t.Count)
	case TraceBatonSent, TraceBatonReceived:
		return fmt.Sprintf("%v node=%d number=%d", t.Kind, t.Node, t.Number)
	case TraceSeated:
		return fmt.Sprintf("seated request=%d seat=%v", t.Request, t.Seat)
	case TraceTied:
		return fmt.Sprintf("tied token=%d seat=%v", t.Token, t.Seat)
	case TraceGranted:
		return fmt.Sprintf("granted request=%d token=%d serial=%d", t.Request, t.Token, t.Number)
	case TraceReleased, TraceReturned:
		return fmt.Sprintf("%v request=%d token=%d", t.Kind, t.Request, t.Token)
	case TraceOffered:
		return fmt.Sprintf("offered token=%d node=%d", t.Token, t.Node)
	case TraceWithheld:
		return fmt.Sprintf("withheld token=%d", t.Token)
	case TraceAdopted, TraceCancelled:
		return fmt.Sprintf("%v request=%d", t.Kind, t.Request)
	case TraceParked:
		return fmt.Sprintf("parked token=%d number=%d", t.Token, t.Number)
	case TraceFrozen, TraceInstalled:
		return fmt.Sprintf("%v epoch=%d", t.Kind, t.Number)
	case TraceStale:
		return fmt.Sprintf("stale node=%d", t.Node)
	default:
		return t.Kind.String()
	}
}
