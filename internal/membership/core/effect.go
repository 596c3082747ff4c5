package core

import (
	"log/slog"
	"time"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// Effects are what the driver has to do after an event, in any order unless a field says
// more.
type Effects struct {
	// Send these messages, in this order where they go to the same process. Those without
	// a connection are dropped.
	Send []Send
	// Write these, in this order, each as one record. The driver answers each with
	// [Written], and Loads them at the next start.
	Write []Write
	// Dial these. The driver answers each with [Dialed], after Most at the latest.
	Dial []Dial
	// View is the newest one; nil if it is the same as before.
	View *views.View
	// Standing is this gateway's; nil if it is the same as before.
	Standing *Standing
	// Voters may be others.
	Voters bool
	// Committed is how long the leader has waited for each command to be agreed on.
	Committed []time.Duration
	// Results are what became of commands.
	Results []Result
	// Boot is the new incarnation's, for discovery to tell; empty if it is the same.
	Boot string
	// Left: this gateway is in the view no more, as it wanted, or cannot bring that about.
	Left bool
	// Failed is why this process must end; nil if it need not.
	Failed error
	// Log these lines.
	Log []Line
	// Wake is when to call Step with [Woken], if nothing happens before.
	Wake time.Duration
}

// Send is a message to a process.
type Send struct {
	To      ID
	Message Message
}

// Write is a record for the disk.
type Write struct {
	// Number counts from 1.
	Number uint64
	Record []byte
}

// Dial is an attempt to reach a gateway.
type Dial struct {
	Name, Addr string
	// Doubt: there is a connection, and nothing has come for a while. Another one shows whether anybody
	// answers, and ends.
	Doubt bool
	// First is how long the host may take to answer at all, and Most how long all of it may
	// take.
	First, Most time.Duration
}

// Standing says as whom, and until when, this gateway may have requests in flight.
type Standing struct {
	Node kmutex.Node
	// Until is on the core's clock; what has to be broken off by then is already taken
	// off. 0: no lease.
	Until time.Duration
	// Void: nothing can come of this incarnation any more. When all that it had in flight
	// has ended, say [Rejoin].
	Void bool
}

// Result is what became of a [Propose].
type Result struct {
	Tag uint64
	// Err is why the command was refused; nil if it was carried out.
	Err error
}

// Line is one of the log.
type Line struct {
	Level slog.Level
	Text  string
	Attrs []slog.Attr
}
