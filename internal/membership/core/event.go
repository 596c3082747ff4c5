package core

import (
	"time"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// ID names a process: random and never used twice, but kept with a data directory. It is
// what raft calls a server. 0 is none.
type ID uint64

// Event is something that has happened.
type Event interface{ event() }

type (
	// Woken says only that time has passed.
	Woken struct{}

	// Received is a message of a process. Messages of one connection come in order, and
	// any of them may be lost. Trip is how long a round trip takes; 0: unknown.
	Received struct {
		From    ID
		Message Message
		Trip    time.Duration
	}

	// Connected says that long packets pass to and from a process, of the gateway with that
	// name.
	Connected struct {
		To   ID
		Name string
	}

	// Disconnected says that they do not any more.
	Disconnected struct{ From ID }

	// Dialed says what became of a [Dial]. If it led to a process, Connected comes
	// before it. Err is why it did not.
	Dialed struct {
		Name string
		Err  error
	}

	// Gossip is all that discovery knows, this gateway included.
	Gossip struct{ Gateways []Gateway }

	// Missing are the members whose reports this gateway misses as the home of a pool, and
	// since when it waits for them.
	Missing struct{ Since map[kmutex.Node]time.Duration }

	// Written says that the write of that number, and all before it, are on disk.
	Written struct{ Number uint64 }

	// Propose asks to have a command agreed on. [Effects.Results] has the tag when it is.
	// It is tried again until then, so every command must do no harm if it is carried out
	// twice.
	Propose struct {
		Tag     uint64
		Command views.Command
	}

	// Forget ends a Propose: nobody waits for it any more.
	Forget struct{ Tag uint64 }

	// Rejoin says that nothing is in flight any more that a lost incarnation had let in.
	Rejoin struct{}

	// Leave says that nothing is in flight and nothing will be. [Effects.Left] tells when
	// the others know.
	Leave struct{}
)

func (Woken) event()        {}
func (Received) event()     {}
func (Connected) event()    {}
func (Disconnected) event() {}
func (Dialed) event()       {}
func (Gossip) event()       {}
func (Missing) event()      {}
func (Written) event()      {}
func (Propose) event()      {}
func (Forget) event()       {}
func (Rejoin) event()       {}
func (Leave) event()        {}

// Gateway is one that discovery knows.
type Gateway struct {
	Name, Boot, Addr string
	// Expect is how many gateways it starts a cluster with.
	Expect int
	Alive  bool
	// Left: it was stopped in order.
	Left bool
}
