package fuzz

import (
	"fmt"
	"strings"
	"time"
)

// Kind of an operation.
type Kind string

// The operations.
const (
	OpRequest Kind = "request" // Host, Hold, Patience
	OpTicket  Kind = "ticket"  // Host, Hold, Patience: its time to live
	OpKill    Kind = "kill"
	OpStart   Kind = "start" // of Host, or the first from there on that does not run; K 1: only it
	OpLeave   Kind = "leave"
	OpPause   Kind = "pause"
	OpResume  Kind = "resume"
	OpCut     Kind = "cut"     // From and To: sets of hosts, as bits
	OpHeal    Kind = "heal"    // the same
	OpBar     Kind = "bar"     // no new connections; the same
	OpUnbar   Kind = "unbar"   // the same
	OpNarrow  Kind = "narrow"  // long messages are lost; the same
	OpWiden   Kind = "widen"   // the same
	OpLose    Kind = "lose"    // half of the letters are lost; the same
	OpUnlose  Kind = "unlose"  // the same
	OpSlow    Kind = "slow"    // Host and To, Hold: by how much
	OpSetK    Kind = "k"       // K
	OpRate    Kind = "rate"    // Host, Rate: of its clock
	OpStep    Kind = "step"    // Host, Hold: of its wall clock
	OpElect   Kind = "elect"   // Hold: who leads is paused for so long
	OpDepose  Kind = "depose"  // Host, Hold, K: it is alone with who leads, which stands still or (1) is killed
	OpCrash   Kind = "crash"   // a kill without a word
	OpRestore Kind = "restore" // Host, K: an old copy of its disk is put back, with K percent of what came since three voted
	OpWrite   Kind = "write"   // Host, K: it ends with that write
	OpHang    Kind = "hang"    // its disk
	OpUnhang  Kind = "unhang"
	OpBreak   Kind = "break" // Host and To: their connection
	OpSuspect Kind = "suspect"
	OpRecover Kind = "recover"
	OpSick    Kind = "sick" // Host, K: an upstream that it cannot reach
	OpWell    Kind = "well" // the same
)

// Op is one operation.
type Op struct {
	At   time.Duration
	Kind Kind
	Host int
	// On lets it wait, from At on, for the next message of this kind, and
	// happen to its receiver, just before it or (After) just after; with Here
	// for the next message that Host gets.
	On    string
	After bool
	Here  bool

	Hold, Patience time.Duration
	From, To       uint
	K              int
	Rate           float64
}

// String formats the operation for people.
func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.3fs %s", o.At.Seconds(), o.Kind)
	switch o.Kind {
	case OpRequest, OpTicket:
		fmt.Fprintf(&b, " host=%d hold=%v", o.Host, o.Hold)
		if o.Patience > 0 {
			fmt.Fprintf(&b, " patience=%v", o.Patience)
		}
	case OpCut, OpHeal, OpBar, OpUnbar, OpNarrow, OpWiden, OpLose, OpUnlose:
		fmt.Fprintf(&b, " from=%b to=%b", o.From, o.To)
	case OpSlow, OpStep, OpElect:
		fmt.Fprintf(&b, " host=%d by=%v", o.Host, o.Hold)
	case OpBreak:
		fmt.Fprintf(&b, " host=%d to=%d", o.Host, o.To)
	case OpDepose:
		fmt.Fprintf(&b, " host=%d by=%v kill=%d", o.Host, o.Hold, o.K)
	case OpWrite, OpRestore, OpSick, OpWell:
		fmt.Fprintf(&b, " host=%d at=%d", o.Host, o.K)
	case OpSetK:
		fmt.Fprintf(&b, "=%d", o.K)
	case OpRate:
		fmt.Fprintf(&b, " host=%d rate=%.3f", o.Host, o.Rate)
	case OpRecover:
	default:
		fmt.Fprintf(&b, " host=%d", o.Host)
	}
	if o.On != "" {
		when := "before"
		if o.After {
			when = "after"
		}
		who := "who gets it"
		if o.Here {
			who = fmt.Sprintf("host %d", o.Host)
		}
		fmt.Fprintf(&b, " (%s, %s the next %s)", who, when, o.On)
	}
	return b.String()
}
