package downstream

// state of a client's connection.
type state uint8

const (
	isNew    state = iota // nothing of a request has come
	isIdle                // between two requests
	inHead                // a part of a request's head has come
	serving               // a request waits to be admitted, or is served
	draining              // the last answer is out; what comes is dropped
	tunnel                // another protocol has the connection: HTTP/2, an upgrade, TCP
	closed
	states // how many
)

// roles are what the connections of a state are to the limiter. One that drains tells it itself, when
// it may be asked to leave.
var roles = [states]role{isNew: fresh, inHead: fresh, isIdle: idle}

// event is what happens to a connection.
type event uint8

const (
	gotBytes   event = iota // a part of a head has come
	gotHead                 // a whole one has
	gotEnd                  // the client has closed its sending side, or a write to it has failed
	gotReset                // the client has reset the connection
	timedOut                // the time for what has to come is over
	isAnswered              // the answer is out, and another request may follow
	isLast                  // the answer is out, and no other request may follow
	isSwitched              // the connection goes on in another protocol
	isFull                  // others want the place
	byUs                    // by the gateway
	events                  // how many
)

// effect is what has to be done after an event.
type effect uint8

const (
	nothing   effect = iota
	boundHead        // the time for the rest of the head begins
	tell             // the watcher is told, and what is written fails
	drain            // what comes is read and dropped, for a while
	end              // the connection is closed
)

type transition struct {
	to state
	do effect
}

// transitions has what each event does to each state. What is left out does nothing, and the state
// stays.
//
// A server that ends is not an event: it makes the answer that comes next the last one, and wants
// the places of those who wait for a request, when they have had their time for it.
var transitions = func() (t [states][events]transition) {
	for s := range states {
		for e := range events {
			t[s][e] = transition{s, nothing}
		}
		t[s][byUs] = transition{closed, tell}
	}
	t[closed][byUs] = transition{closed, nothing}

	t[isNew][gotBytes] = transition{inHead, nothing} // its time began with the connection
	t[isIdle][gotBytes] = transition{inHead, boundHead}
	for _, s := range []state{isNew, isIdle, inHead} {
		t[s][gotHead] = transition{serving, nothing}
		t[s][timedOut] = transition{s, end}
		t[s][isFull] = transition{s, end}
		t[s][isLast] = transition{draining, drain} // it was no request
		t[s][isSwitched] = transition{tunnel, nothing}
	}
	t[serving][gotEnd] = transition{serving, tell}
	t[serving][gotReset] = transition{serving, tell}
	t[serving][isAnswered] = transition{isIdle, nothing}
	t[serving][isLast] = transition{draining, drain}
	t[serving][isSwitched] = transition{tunnel, nothing}
	t[tunnel][gotReset] = transition{tunnel, tell} // each side may end alone
	t[draining][gotReset] = transition{draining, end}
	t[draining][timedOut] = transition{draining, end}
	return t
}()
