package wire

import (
	"errors"
	"fmt"
	"time"
)

// ErrSilent says that the other end has been silent for too long.
var ErrSilent = errors.New("the peer has been silent for too long")

// pulse is what a connection knows of the other end's life.
type pulse struct {
	interval time.Duration
	heardAt  time.Duration
	// owedSince is since when the other end owes something, as far as Tick has noticed; never:
	// it owes nothing.
	owedSince time.Duration
	ticked    time.Duration // when Tick was called last

	pong       uint64 // the ping to answer, 0: none
	pingDue    bool
	paddingDue bool
	pingID     uint64
	pinged     time.Duration // when pingID was written; never: answered
	before     uint64        // the last message that was written before it
	// unackedSince is since when the other end has read messages, as its answer to a ping shows,
	// and acknowledged none.
	unackedSince time.Duration
	measured     time.Duration // when the round trip was, last
	padded       time.Duration // when a padding was, last
	proved       bool
	rtt          time.Duration // smoothed; 0: unknown
	samples      int
}

const never = time.Duration(-1)

// How a connection is watched, in parts of its interval.
const (
	// An end that owes something is asked at the next tick if it is silent, and once an interval
	// otherwise. There are tickParts ticks in an interval.
	tickParts = 6
	// measureEvery is how many intervals a busy connection goes without measuring its round
	// trip, and padEvery without proving that long packets pass.
	measureEvery = 12
	padEvery     = 48
	// unackedParts is how many intervals messages may take to be acknowledged that were read.
	unackedParts = 3
)

// Proved reports whether long packets have passed both ways.
func (c *Conn) Proved() bool { return c.proved }

// RTT returns the smoothed round-trip time, 0 while it is unknown.
func (c *Conn) RTT() time.Duration { return c.rtt }

// Challenge asks the other end for a sign of life, which it owes then.
func (c *Conn) Challenge() { c.pingDue, c.expecting = true, true }

// Owed reports whether the other end owes something: an acknowledgement, an answer, a sign that
// it has read data.
func (c *Conn) Owed() bool {
	return c.link != nil && c.link.Queued() > 0 && c.linked() || c.expecting || len(c.asked) > 0 || c.inFlight > 0
}

// Tick looks at the clock. It is to be called each sixth of the interval, and twice as often
// while the other end owes something. ErrSilent ends the connection: after 3/2 intervals in which
// nothing has come, or one in which something was owed; or if pings are answered, but for
// unackedParts intervals no message was acknowledged of those that were read.
//
// The two ends of an idle connection take turns: an end that receives a ping or an answer need
// not send its own, so the end that was dialled waits a little longer. A call that comes late does
// not count the time for which it is late.
func (c *Conn) Tick(now time.Duration) error {
	if late := now - c.ticked - c.interval/tickParts; late > c.interval/tickParts {
		// This process stood still, and could not hear anything.
		c.heardAt += late
		if c.owedSince != never {
			c.owedSince += late
		}
		if c.unackedSince != never {
			c.unackedSince += late
		}
	}
	c.ticked = now
	quiet := max(now-c.heardAt, 0)
	switch owed := c.Owed(); {
	case !owed:
		c.owedSince = never
	case c.owedSince == never:
		c.owedSince = now
	}
	var waited time.Duration // in silence, for what is owed
	if c.owedSince != never {
		waited = min(quiet, now-c.owedSince)
	}
	if quiet >= c.interval*3/2 || waited >= c.interval {
		return fmt.Errorf("%w: %v", ErrSilent, quiet.Round(time.Millisecond))
	}
	if c.unackedSince != never && now-c.unackedSince >= unackedParts*c.interval {
		return fmt.Errorf("%w: it has acknowledged no message for %v", ErrSilent, (now - c.unackedSince).Round(time.Millisecond))
	}
	patience := c.interval
	if !c.dialled {
		patience += c.interval / 4
	}
	if now-c.padded >= padEvery*c.interval {
		c.padded, c.paddingDue, c.pingDue = now, true, true
	}
	unmeasured := now - c.measured
	if quiet >= patience || c.owedSince != never && (quiet >= c.interval/(2*tickParts) || unmeasured >= c.interval) || unmeasured >= measureEvery*c.interval {
		c.pingDue = true
	}
	return nil
}

// pings reports whether a ping is to be written: one at a time.
func (c *Conn) pings() bool { return c.pingDue && c.pinged == never }

// ping returns the number of the ping that is written now.
func (c *Conn) ping(now time.Duration) uint64 {
	c.pingDue = false
	c.pingID++
	c.pinged, c.measured, c.before = now, now, 0
	if c.linked() {
		c.before = c.link.sent
	}
	return c.pingID
}

// ponged takes in the answer to a ping.
func (c *Conn) ponged(now time.Duration, id uint64) error {
	if c.pinged == never || id != c.pingID {
		return fmt.Errorf("%w: answer to ping %d, which was not asked", ErrProtocol, id)
	}
	// The mean of the first eight, then a moving average by an eighth.
	c.adapt(now - c.pinged)
	if c.linked() && c.link.acked < c.before && c.unackedSince == never {
		c.unackedSince = now
	}
	c.samples = min(c.samples+1, 8)
	c.rtt = max(c.rtt+(max(now-c.pinged, 1)-c.rtt)/time.Duration(c.samples), 1)
	c.pinged = never
	if !c.proved {
		c.proved = true
		c.event(Event{Kind: Proved})
	}
	return nil
}
