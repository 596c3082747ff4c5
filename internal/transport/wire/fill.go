package wire

import (
	"time"
)

// Due reports whether Fill has something to write.
func (c *Conn) Due() bool {
	return c.announceDue || len(c.urgentOut.frames) > 0 || c.linkDue() || c.ackDue || c.pong != 0 || c.pings() ||
		c.unread > 0 || len(c.cancels) > 0 || len(c.normal.frames) > 0 || len(c.answers) > 0 || c.dataDue()
}

// Fill appends what is to be written now to dst, most urgent first, about limit bytes of it,
// and returns how many messages are in it.
func (c *Conn) Fill(now time.Duration, dst []byte, limit int) (batch []byte, messages int) {
	if c.announceDue {
		c.announceDue = false
		dst = appendNumbers(dst, typeLink, c.mine.self, c.mine.peer, c.mine.received, c.mine.given)
	}
	if c.paddingDue {
		if c.linkDue() {
			dst, messages = c.link.take(dst, limit, c.size) // they may be short enough
		}
		c.paddingDue = false
		start := len(dst)
		dst = seal(append(open(dst, typePadding), make([]byte, paddingSize)...), start)
	}
	dst = c.fillControl(now, dst)
	dst = c.urgentOut.take(dst, limit)
	if len(c.normal.frames) > 0 {
		dst = c.normal.take(dst, limit)
	}
	dst = c.takeAnswers(dst, limit)
	if c.linkDue() {
		var more int
		dst, more = c.link.take(dst, limit, c.size)
		messages += more
	}
	if c.dataDue() && len(c.normal.frames) == 0 && len(dst) < limit { // what opens a call goes before its data
		dst = c.nextData(dst)
	}
	c.watch(now)
	return dst, messages
}

// fillControl appends what the connection itself has to say.
func (c *Conn) fillControl(now time.Duration, dst []byte) []byte {
	if c.linked() && c.delivered != c.acked {
		c.acked, c.unackedBytes = c.delivered, 0
		dst = appendNumbers(dst, typeAck, c.acked)
	}
	c.ackDue = false
	if c.pong != 0 {
		dst = appendNumbers(dst, typePong, c.pong)
		c.pong = 0
	}
	if c.pings() {
		dst = appendNumbers(dst, typePing, c.ping(now))
	}
	for c.unread > 0 {
		n := min(c.unread, maxWindow)
		dst = appendNumbers(dst, typeCredit, uint64(n))
		c.unread -= n
	}
	for _, id := range c.cancels {
		dst = appendNumbers(dst, typeCancel, id)
	}
	c.cancels = c.cancels[:0]
	return dst
}

// nextData appends one frame of data. The sources take turns.
func (c *Conn) nextData(dst []byte) []byte {
	s := c.data[0]
	c.data = c.data[1:]
	part := s.rest[:min(len(s.rest), fragment)]
	s.rest = s.rest[len(part):]
	c.inFlight += len(part)
	last := len(s.rest) == 0
	dst = appendData(dst, s.id, part)
	switch {
	case !last:
		c.data = append(c.data, s)
	case s.question != nil:
		c.forget(s.question)
	}
	return dst
}
