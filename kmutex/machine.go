package kmutex

import (
	"errors"
	"fmt"
	"slices"
)

// Why an event is refused; the machine is as before it then.
var (
	// errRequest: the event does not fit the request, or there is no such request.
	errRequest = errors.New("kmutex: unexpected request")
	// errProtocol: a correct peer cannot have sent this message.
	errProtocol = errors.New("kmutex: protocol violation")
	// ErrInstall: the epoch cannot begin like this.
	ErrInstall = errors.New("kmutex: bad install")
	// errOverflow: too many messages of an epoch to come.
	errOverflow = errors.New("kmutex: too many events before install")
	// errEvent: no such event.
	errEvent = errors.New("kmutex: unknown event")
)

// maxDeferred bounds the messages that a machine keeps for an epoch that it has not entered yet.
// It keeps its own waiting requests, too, which the driver's queue limit bounds, and the ends of
// requests that it had before.
const maxDeferred = 1 << 16

// Machine runs the algorithm for one pool on one node. Make it with [New]; it
// is not safe for concurrent use.
type Machine struct {
	self    Node
	binding Binding

	epoch  uint64
	frozen bool // between Freeze (or New) and Install
	home   Node
	k      int

	// installed is the epoch that last began here, 0: none; tokens are all tokens of that epoch,
	// nil: not known; the withheld among them are at no living node.
	installed        uint64
	tokens, withheld TokenSet
	classes          []TokenSet
	excess           []uint32
	// coming is the k of the epoch that the machine is frozen for; maxK is the largest k of
	// earlier epochs that the machine was frozen for and that never began here.
	coming, maxK int

	// parent points toward the last in line; 0: this node is the last.
	parent Node
	// batches of this node in the line, the oldest first. Only the last one can
	// be open (nobody behind it yet).
	batches []Batch
	// numbered is the number of the newest of them.
	numbered uint64
	// offered tokens have come along the line to this node's last batch, which is the last
	// of the line. This node could not use them. retrying: the retry interval is running.
	offered  TokenSet
	retrying bool
	// out: batches that are out of the line are still among batches.
	out bool
	// pending requests are in no batch yet.
	pending []Request
	// asked: the ask interval is running.
	asked bool
	// baton: this node is the coordinator. number is the number of the newest baton that is or
	// was here.
	baton  bool
	number uint64

	running []Grant // in ascending order of requests
	last    Request // the largest request of this node's own so far
	adopted Request // the largest request that it has adopted

	// Until the next Install: the ends of this node's requests and messages of an
	// epoch to come, in order; and requests that have arrived, in order.
	deferred []Event
	arrived  []Request

	fx       Effects
	recorded int // how many of fx.Grants are in running
}

// Batch is a run of requests of one node that holds one place in the line.
type Batch struct {
	// Number tells this node's batches of an epoch apart; later ones have larger numbers.
	Number uint64
	// Requests that wait, in the order of the line, without the requests that the binding has
	// taken over. Numbers ascend, except that an adopted request has a high number and stands
	// where it stood at the lost node.
	Requests []Request
	// Next is the batch behind this one, or a later one if nobody waits in those between. The
	// zero Place: none yet, the batch is open and later requests of this node join it.
	Next Place
	// Before is the batch before this one, as far as this one has been told. The zero Place: not known, or
	// this batch Leaves and is out of the line (late binding).
	Before Place
	// Leaves: Before has been told to pass this one by, since nobody waits here, and nobody ever will.
	Leaves bool
	// Stood counts the retry intervals that have ended since this batch is closed, up to 2.
	Stood uint8
}

// New returns a machine of node self that waits for its first Install.
func New(self Node, b Binding) *Machine {
	return &Machine{self: self, binding: b, frozen: true, adopted: FirstAdopted - 1}
}

// Step lets the machine take in one event. The effects stay valid until the
// next step. An error means that the event was refused and nothing changed.
func (m *Machine) Step(e *Event) (*Effects, error) {
	m.fx.reset()
	m.fx.self, m.fx.epoch = m.self, m.epoch
	m.recorded = 0
	return &m.fx, m.dispatch(e)
}

func (m *Machine) dispatch(e *Event) error {
	switch e.Kind {
	case EventFreeze:
		return m.freeze(e.Epoch, e.K)
	case EventInstall:
		return m.install(e.Install)
	case EventReceive:
		return m.receive(e)
	case EventAcquire:
		if e.Request <= m.last || e.Request >= FirstAdopted {
			return fmt.Errorf("%w: acquire %d after %d", errRequest, e.Request, m.last)
		}
		m.last = e.Request
	case EventCancel, EventRelease, EventReturn, EventAskDue, EventRetryDue:
	case EventBar: // also while the machine is frozen: it is about no request
		return m.bar(e.Barred)
	default:
		return fmt.Errorf("%w: %d", errEvent, e.Kind)
	}
	if m.frozen {
		m.postpone(e)
		return nil
	}
	return m.local(e)
}

// postpone keeps a local event for the next Install. A request that comes and goes
// before it leaves nothing behind.
func (m *Machine) postpone(e *Event) {
	switch e.Kind {
	case EventAcquire:
		m.arrived = append(m.arrived, e.Request)
	case EventAskDue, EventRetryDue: // the next epoch begins without these intervals
	default:
		if i, ok := slices.BinarySearch(m.arrived, e.Request); ok {
			m.arrived = slices.Delete(m.arrived, i, i+1)
			m.fx.Note(Trace{Kind: TraceCancelled, Request: e.Request})
			return
		}
		m.deferred = append(m.deferred, *e)
	}
}
