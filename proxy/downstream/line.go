package downstream

import (
	"net/netip"
	"time"
)

// role is what a connection is to the limiter. It follows from its state: see roles.
type role uint8

const (
	busy    role = iota // it has a request, or is closed
	fresh               // the server waits for the first request, or the rest of one
	idle                // it is between two requests
	drained             // its last answer is out: what comes is dropped
)

// entry is a connection as the limiter knows it. limiter.mu guards its fields.
type entry struct {
	conn    keeper
	from    netip.Addr // who may have many connections; invalid: not known
	since   time.Time  // when it got its role
	role    role
	gone    bool
	leaving bool // it has been asked to leave: it is in no line

	in         *line // nil: none
	prev, next *entry
}

// line is a list of connections. Who has been there for longest is first.
type line struct {
	first, last *entry
	n           int
}

func (l *line) add(e *entry) {
	if e.in, e.prev = l, l.last; l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.n++
}

func (l *line) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.in, e.prev, e.next = nil, nil, nil
	l.n--
}
