package upstream

import "github.com/kgate/kgate/proxy/tcpstate"

// Paced may be implemented by a Caller that reads its answer no faster than a rate. The
// server is then held back. Otherwise the kernel would read ahead as much as fits a buffer
// of several MiB.
type Paced interface {
	// Rate is the rate of all callers of the server together, in bytes per second; 0: no
	// bound.
	Rate() int64
}

const (
	// leastAhead is the smallest buffer with which a connection on one machine, whose
	// segments have 64 KiB, does not stall.
	leastAhead = 64 << 10
	// mostAhead is the largest buffer that every system grants.
	mostAhead = 200 << 10
)

// aheadOf returns the buffer with which one connection can carry a rate alone: what comes
// in a round trip, in seconds, and in the millisecond until it is read. It returns 0 if no
// buffer is large enough.
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
	rate := p.Rate()
	if rate == c.rate {
		return
	}
	c.rate = rate
	tcpstate.LimitReceive(c.Conn, func(roundTrip float64) int {
		ahead := 0
		if rate > 0 {
			ahead = aheadOf(rate, roundTrip)
		}
		if ahead > 0 {
			c.held = true
		} else if c.held { // the system lets it grow no more
			c.narrow, ahead = true, mostAhead
		}
		return ahead
	})
}

// HoldBack bounds what the system reads ahead for the tunnel's caller.
func (t *Tunnel) HoldBack(caller Paced) { t.raw.holdBack(caller) }
