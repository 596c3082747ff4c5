package wire

import (
	"fmt"
	"slices"
	"time"
)

// SetLink says which link goes over the connection from now on; nil: none. Messages flow once
// the other end has said the same. A link must have been taken from the connection before.
func (c *Conn) SetLink(l *Link) {
	if c.link == l {
		return
	}
	c.link, c.linkErr, c.message, c.ackDue = l, nil, nil, false
	c.unackedSince, c.before = never, 0
	var mine announcement
	if l != nil {
		mine = announcement{l.Self, l.Peer, l.received, l.given}
		c.acked, c.delivered = l.received, l.received
	}
	c.announce(mine)
	c.match()
}

// announce has the other end told what this one serves, before anything else.
func (c *Conn) announce(a announcement) { c.mine, c.announceDue = a, true }

// match looks whether both ends mean the same link, and prepares to send what the other end
// does not have.
func (c *Conn) match() {
	if c.link == nil || c.theirs.self != c.link.Peer || c.theirs.peer != c.link.Self {
		return
	}
	err := c.link.rewind(c.theirs.received)
	if c.link.received > c.theirs.given {
		err = fmt.Errorf("received %d, but only %d were ever sent", c.link.received, c.theirs.given)
	}
	if err != nil {
		c.linkErr = fmt.Errorf("%w: %w", errSequence, err)
		c.announce(announcement{})
	}
}

// Receive takes in bytes. It returns how many of them it has used: what is left begins an
// incomplete frame. The events are valid until the next call. After an error the connection
// must end; the events before it count.
func (c *Conn) Receive(now time.Duration, b []byte) (used int, events []Event, err error) {
	clear(c.events)
	c.events = c.events[:0]
	c.heardAt, c.expecting = now, false
	var f frame
	for len(b)-used >= lengthSize {
		size := frameSize(b[used:])
		if size > maxFrame+lengthSize {
			return used, c.events, fmt.Errorf("%w: %d bytes, at most %d", ErrOversized, size-lengthSize, maxFrame)
		}
		if len(b)-used < size {
			break
		}
		if err := decode(b[used+lengthSize:used+size], &f); err != nil {
			return used, c.events, err
		}
		if err := c.take(now, &f); err != nil {
			return used, c.events, err
		}
		used += size
	}
	return used, c.events, nil
}

// Detach has the events of the last call of Receive stay valid for ever.
func (c *Conn) Detach() { c.events = nil }

// take takes in one frame.
func (c *Conn) take(now time.Duration, f *frame) error {
	switch f.kind {
	case typeMessage:
		return c.takeMessage(f)
	case typeDatagram:
		return c.takeDatagram(f)
	case typeCall:
		return c.takeCall(f)
	case typeData:
		return c.takeData(f)
	case typeAnswer:
		return c.takeAnswer(f)
	case typeCancel:
		if len(c.cancels) >= maxCancels {
			return fmt.Errorf("%w: more than %d ends", ErrProtocol, maxCancels)
		}
		return c.takeCancel(f.id)
	case typeCredit:
		return c.takeCredit(f)
	case typePing:
		c.pong, c.ackAsked = f.id, true
	case typePong:
		return c.ponged(now, f.id)
	case typeLink:
		c.theirs, c.message = f.link, nil
		c.match()
		c.event(Event{Kind: Linked})
	case typeAck:
		if !c.linked() {
			return nil
		}
		if f.id > c.link.acked {
			c.unackedSince = never
		}
		if err := c.link.ack(f.id); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	case typePadding:
	}
	return nil
}

func (c *Conn) takeMessage(f *frame) error {
	if !c.linked() {
		return nil // of an incarnation that is over at one end
	}
	data := f.data
	if f.flag || len(c.message) > 0 {
		if len(c.message)+len(data) > MaxMessage {
			return fmt.Errorf("%w: a message of more than %d bytes", ErrProtocol, MaxMessage)
		}
		c.message = append(c.message, data...)
		if f.flag {
			return nil
		}
		data, c.message = c.message, nil
	}
	c.link.received++
	c.unackedBytes += len(data)
	c.event(Event{Kind: Message, Data: data})
	return nil
}

// Delivered notes that the next n messages of the link are delivered: the other end may be told.
func (c *Conn) Delivered(n int) {
	if c.link == nil {
		return
	}
	c.delivered = min(c.delivered+uint64(n), c.link.received)
	if c.unackedBytes >= ackBytes || c.delivered-c.acked >= ackMessages || c.ackAsked {
		c.ackDue = c.delivered != c.acked
	}
	c.ackAsked = false
}

func (c *Conn) takeDatagram(f *frame) error {
	if c.Stranger && f.flag {
		return fmt.Errorf("%w: a long datagram of a stranger", ErrProtocol)
	}
	data, part := f.data, &c.datagrams[f.channel]
	if f.flag || len(*part) > 0 {
		if len(*part)+len(data) > maxDatagram {
			return fmt.Errorf("%w: a datagram of more than %d bytes", ErrProtocol, maxDatagram)
		}
		*part = append(*part, data...)
		if f.flag {
			return nil
		}
		data, *part = *part, nil
	}
	c.event(Event{Kind: Datagram, Channel: f.channel, Data: data})
	return nil
}

// takeCancel takes in that the other end gives up a call, or what is left of an answer.
func (c *Conn) takeCancel(id uint64) error {
	if call := c.asked[id]; call != nil && call.answering {
		c.endCall(call) // the rest of its answer does not come
		return nil
	}
	q := c.questions[id]
	switch {
	case q == nil || q.canceled: // its answer is on its way
		return nil
	case q.missing > 0: // nobody has heard of it
		q.canceled, q.missing, q.Body = true, 0, nil
		c.Answer(q, StatusCanceled, nil)
	default:
		q.canceled = true
		c.event(Event{Kind: Canceled, Question: q})
		if c.dropData(id) { // the answer has begun
			c.cancels = append(c.cancels, id)
			c.forget(q)
		}
	}
	return nil
}

// takeData takes in bytes of a call or an answer.
func (c *Conn) takeData(f *frame) error {
	c.unread += len(f.data)
	if c.ours(f.id) {
		if call := c.asked[f.id]; call != nil {
			return c.answerData(call, f)
		}
	} else if q := c.questions[f.id]; q != nil {
		return c.bodyData(q, f)
	}
	if f.id > max(c.lastID, c.lastTheirs) {
		return fmt.Errorf("%w: %d bytes of call %d", ErrProtocol, len(f.data), f.id)
	}
	return nil // it was given up here meanwhile
}

// takeCredit takes in that the other end has read data.
func (c *Conn) takeCredit(f *frame) error {
	if f.size > c.inFlight {
		return fmt.Errorf("%w: %d bytes read, but %d are under way", ErrProtocol, f.size, c.inFlight)
	}
	c.inFlight -= f.size
	return nil
}

// End ends the connection: it returns the calls that have no answer, those that wait included, and
// the questions whose answers nobody waits for any more.
func (c *Conn) End() (lost []*Call, questions []*Question) {
	c.SetLink(nil)
	lost = slices.Clone(c.waiting)
	for _, call := range c.asked {
		lost = append(lost, call)
	}
	for _, q := range c.questions {
		questions = append(questions, q)
	}
	c.waiting, c.asked, c.questions = nil, nil, nil
	return lost, questions
}
