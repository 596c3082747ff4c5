package wire

import (
	"fmt"
	"time"
)

// Channel says what a datagram is of.
type Channel uint8

// The channels of datagrams.
const (
	// Raft is urgent. After each of its frames the other end is expected to say something.
	Raft Channel = iota
	// Gossip and Tickets are normal.
	Gossip
	Tickets

	channels
)

const (
	// maxDatagram bounds a datagram, and datagramQueue what may wait of all.
	maxDatagram   = 4 << 20
	datagramQueue = 8 << 20
	// MaxMessage bounds a message. The longest, a baton with 65,536 tails of the largest
	// numbers, has about 1.3 MiB.
	MaxMessage = 2 << 20
	// MaxBatch bounds one write, unless a frame or two do not fit.
	MaxBatch = 64 << 10
	// An acknowledgement goes out with the next write, but no later than after this many
	// messages or bytes: a part of the smallest window.
	ackMessages = 256
	ackBytes    = minWindow / 4
	// paddingSize is longer than what any usual network carries in one packet: 9000 bytes
	// and a little.
	paddingSize = 9 << 10
	maxNames    = 1024
	maxCancels  = 1024
)

// EventKind says what has happened.
type EventKind uint8

// What can happen.
const (
	// Message: Data is the next message of the link.
	Message EventKind = 1 + iota
	// Datagram: Data has come on Channel.
	Datagram
	// Asked: Question is to be answered.
	Asked
	// Canceled: nobody waits for the answer to Question any more. It still is to be answered.
	Canceled
	// Answered: Call has ended with Status; Data is the answer, for the caller to keep.
	Answered
	// Linked: the other end serves the link now, or does so no longer; or it has forgotten it.
	Linked
	// Proved: long packets pass both ways.
	Proved
)

// Event is something that has happened. Data belongs to it until the next call of Receive,
// unless its kind says otherwise.
type Event struct {
	Kind     EventKind
	Channel  Channel
	Status   Status
	Data     []byte
	Call     *Call
	Question *Question
}

// Conn is one connection, from the hellos to its end. It has no lock.
type Conn struct {
	calls
	pulse
	window

	// Stranger: nobody here has to do with the other end. What it asks and is answered may have
	// mostOfStranger bytes each, besides one call of longOfStranger and one answer that is long.
	Stranger bool

	dialled           bool
	urgentOut, normal queue
	data              []*source // to be written, one frame at a time
	inFlight          int       // bytes of data written that the other end has not read
	unread            int       // bytes of data read that the other end has not been told of
	link              *Link
	mine, theirs      announcement
	announceDue       bool
	linkErr           error
	ackDue            bool
	acked, delivered  uint64 // what the other end was told, and what it may be told
	ackAsked          bool   // by a ping
	unackedBytes      int
	message           []byte // incomplete
	datagrams         [channels][]byte
	expecting         bool // a frame of raft was sent since anything has come
	names             map[string]string
	events            []Event
}

// NewConn returns a connection that begins now. Dialled says which end this is, and interval
// after how long a silent connection is asked for a sign of life.
func NewConn(now time.Duration, dialled bool, interval time.Duration) *Conn {
	return &Conn{
		dialled: dialled, pulse: newPulse(now, interval), window: window{size: minWindow}, names: make(map[string]string),
		calls: calls{asked: make(map[uint64]*Call), questions: make(map[uint64]*Question)},
	}
}

// Send queues a datagram of 1 to 4 MiB. ErrFull says that it was dropped.
func (c *Conn) Send(ch Channel, data []byte) error {
	q := &c.normal
	if ch == Raft {
		q = &c.urgentOut
	}
	switch {
	case len(data) == 0 || len(data) > maxDatagram:
		return fmt.Errorf("%w: a datagram of %d bytes", errCall, len(data))
	case len(q.frames)+len(data) > datagramQueue:
		return fmt.Errorf("%w: %d bytes", ErrFull, len(q.frames))
	}
	q.frames = appendDatagram(q.frames, ch, data)
	c.expecting = c.expecting || ch == Raft
	return nil
}

// Linked reports whether messages flow. The error says that they never will.
func (c *Conn) Linked() (bool, error) {
	return c.link != nil && c.linkErr == nil && c.theirs.self == c.link.Peer && c.theirs.peer == c.link.Self, c.linkErr
}

func (c *Conn) linked() bool {
	yes, _ := c.Linked()
	return yes
}

func (c *Conn) event(e Event) { c.events = append(c.events, e) }

// name keeps one copy of each name. They come from the other end, so they are bounded.
func (c *Conn) name(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(c.names) < maxNames {
		c.names[s] = s
	}
	return s
}

func (c *Conn) linkDue() bool { return c.link != nil && c.link.due(c.size) && c.linked() }

func (c *Conn) dataDue() bool { return len(c.data) > 0 && c.inFlight < c.size }

// dropData gives up data that is not yet written, and reports whether there was any.
func (c *Conn) dropData(id uint64) bool {
	for i, s := range c.data {
		if s.id == id {
			c.data = append(c.data[:i:i], c.data[i+1:]...)
			return true
		}
	}
	return false
}

// source has data to be written.
type source struct {
	id       uint64
	rest     []byte
	question *Question // whose answer it is
}

// mine reports whether this end has given a number.
func (c *Conn) ours(id uint64) bool { return id%2 == 1 == c.dialled }

// nextID returns the number of a new call of this end.
func (c *Conn) nextID() uint64 {
	if c.lastID == 0 && c.dialled {
		c.lastID = 1
	} else {
		c.lastID += 2
	}
	return c.lastID
}

// taken takes in the number of a call of the other end.
func (c *Conn) taken(id uint64) error {
	if c.ours(id) || c.questions[id] != nil {
		return fmt.Errorf("%w: number %d again", ErrProtocol, id)
	}
	c.lastTheirs = max(c.lastTheirs, id)
	return nil
}

// newPulse begins with a padding and a ping. A network may lose long packets and let short ones
// through; then nothing behind the first long one arrives, either. The answer to that ping
// shows that both paddings have arrived, because the other end writes its own before it.
func newPulse(now, interval time.Duration) pulse {
	return pulse{
		interval: interval, heardAt: now, ticked: now, owedSince: never, pinged: never,
		unackedSince: never, measured: now, padded: now, pingDue: true, paddingDue: true,
	}
}
