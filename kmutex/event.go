package kmutex

import "fmt"

// EventKind tells the inputs of a machine apart.
type EventKind uint8

// The events.
const (
	// EventAcquire puts Request, which must be larger than any before it, in line.
	EventAcquire EventKind = 1 + iota
	// EventCancel ends Request whatever its state: it leaves the line, or, when
	// it is in the critical section already, releases its token.
	EventCancel
	// EventRelease ends Request's critical section.
	EventRelease
	// EventAskDue: the ask interval that [Effects].AskTimer started has passed.
	EventAskDue
	// EventReturn ends Request's critical section and has it wait again, ahead of this
	// node's other waiting requests: it could not use its token.
	EventReturn
	// EventBar tells which tokens this node cannot use from now on: Barred, and no others.
	EventBar
	// EventRetryDue: the time that [Effects].RetryTimer started has passed.
	EventRetryDue
	// EventReceive delivers Message from node From.
	EventReceive
	// EventFreeze ends the machine's epoch, because the pool is about to enter
	// Epoch, with K tokens. The effects hold the [Report]. Until the Install of that
	// epoch, requests in the critical section go on and every other event is
	// deferred.
	EventFreeze
	// EventInstall begins an epoch as Install says.
	EventInstall
)

// Event is one input of a machine. Which fields count depends on Kind.
type Event struct {
	Kind    EventKind
	Request Request
	From    Node
	Message *Message // the machine may keep it
	Epoch   uint64
	K       int
	Barred  TokenSet
	Install *Install
}

// String formats e for golden traces and failing schedules.
func (e Event) String() string {
	switch e.Kind {
	case EventAcquire:
		return fmt.Sprintf("acquire %d", e.Request)
	case EventCancel:
		return fmt.Sprintf("cancel %d", e.Request)
	case EventRelease:
		return fmt.Sprintf("release %d", e.Request)
	case EventAskDue:
		return "ask-due"
	case EventReturn:
		return fmt.Sprintf("return %d", e.Request)
	case EventBar:
		return fmt.Sprintf("bar %v", e.Barred)
	case EventRetryDue:
		return "retry-due"
	case EventReceive:
		return fmt.Sprintf("receive %d %v", e.From, *e.Message)
	case EventFreeze:
		return fmt.Sprintf("freeze %d k=%d", e.Epoch, e.K)
	case EventInstall:
		return fmt.Sprintf("install %d", e.Install.Epoch)
	default:
		return fmt.Sprintf("event(%d)", e.Kind)
	}
}
