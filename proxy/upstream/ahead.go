package upstream

import "github.com/kgate/kgate/proxy/tcpstate"

// Paced is what a Caller may implement besides: its answer is read no faster than a rate,
// for which the server has to be held back. Otherwise the system reads ahead as much as
// fits a buffer of several MiB.
type Paced interface {
	// Rate is that of all callers of the server together, in bytes per second; 0: none.
	Rate() int64
}

const (
	// leastAhead is the smallest buffer with which a connection on one machine, whose
	// segments have 64 KiB, does not stall.
	leastAhead = 64 << 10
	// mostAhead is the largest buffer that every system grants.
	mostAhead = 200 << 10
)

// aheadOf returns how much a connection needs to carry a rate alone: what is under way in
// a round trip, in seconds, and in a millisecond until it is read. 0: more than can be had.
func aheadOf(rate int64, roundTrip float64) int {
	if need := float64(rate) * (roundTrip + 0.001); need <= mostAhead {
		return max(int(need), leastAhead)
	}
	return 0
}

// holdBack bounds what the system reads ahead for the caller.
func (c *conn) holdBack(caller any) {
	p, ok := caller.(Paced)
	if !ok {
		return
	}
	if rate := p.Rate(); rate != c.rate {
		c.rate = rate
		if rate > 0 {
			tcpstate.LimitReceive(c.Conn, func(roundTrip float64) int { return aheadOf(rate, roundTrip) })
		}
	}
}

// HoldBack is what is done for a Caller, for a tunnel that one caller has.
func (t *Tunnel) HoldBack(caller Paced) { t.raw.holdBack(caller) }
