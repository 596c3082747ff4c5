package core

import "time"

// All times follow from the lease L, and from how long messages and writes take. See
// doc.go for what they add up to.
const (
	// ticksPerQuorum is how many ticks a leader has without word from a majority.
	ticksPerQuorum = 5
	// lookAgain is how often the state is looked at if nothing happens.
	lookAgain = time.Second
	// dialInterval is the pause between two dials of a gateway that may be gone, and
	// dialsFailed how many in a row must fail.
	dialInterval = 50 * time.Millisecond
	dialsFailed  = 3
	// mostDialInterval is the longest pause between two dials.
	mostDialInterval = time.Second
	// joinInterval is the pause between two requests to be let in.
	joinInterval = 100 * time.Millisecond
	// leaveTime is how long a gateway tries to leave.
	leaveTime = 10 * time.Second
)

// pacing is what the times of elections follow from: longer leases do not mean slower elections.
func (c *Core) pacing() time.Duration { return min(c.lease(), 3*time.Second) }

// tick is the leader's: heartbeats follow each other by it.
func (c *Core) tick() time.Duration { return c.pacing() / 15 }

// patience is how long a follower hears nothing until its leader counts as silent.
func (c *Core) patience() time.Duration {
	l := c.pacing()
	return max(l/3, min(2*c.leadersTrip(), c.lease()/2)) + c.random(l/6)
}

// hesitation is how long a voter without a leader waits for somebody else's election.
func (c *Core) hesitation() time.Duration {
	l := c.pacing()
	return l/50 + c.random(max(l/20, 2*c.trip()))
}

// nextTry is how long an election may take until the next one: at least two round trips and two writes, with room for as
// many again. After two in vain there is time for voters whose disks are slower.
func (c *Core) nextTry() time.Duration {
	l := c.pacing()
	least, spread := l/20, l/5
	if c.election.tries > 1 {
		least, spread = l/5, l/3
	}
	return max(least, 2*(2*c.trip()+2*c.pace.typical())) + c.random(max(spread, 2*c.trip()))
}

// answers is how long a host may take to answer a dial at all. Its loss shows only after that, so
// it is short. connects is how long all of a dial may take: several round trips.
func (c *Core) answers() time.Duration {
	return min(max(c.lease()/4, 300*time.Millisecond), time.Second)
}

func (c *Core) connects() time.Duration { return max(c.answers(), min(c.lease()*2/3, 5*time.Second)) }

// longestTrip is the longest round trip to the leader with which a gateway is let in. At half a lease a grant comes
// after three more renewals were sent, and counts no more: see [lease.Holder.Granted].
func (c *Core) longestTrip() time.Duration { return c.lease() * 2 / 5 }

// isFar reports that round trips from this leader take too long. If those to most voters do, it is the leader that is far:
// who is kept out by that may be content with it, and vote for nobody else.
func (c *Core) isFar(trip time.Duration) bool {
	return trip > c.longestTrip() && c.trip() < c.pacing()/4
}

// roundGap is the least time between two rounds, and roundDelay how long one waits for
// renewals that come together with the first.
func (c *Core) roundGap() time.Duration   { return c.lease() / 20 }
func (c *Core) roundDelay() time.Duration { return c.lease() / 200 }

// hangs is how long a leader's write may take until another should lead. Until then leases are renewed, and
// the others agree, without its disk.
func (c *Core) hangs() time.Duration { return max(c.lease()*3/4, min(4*c.pace.typical(), c.lease())) }

// pace is how long the last writes took.
type pace struct {
	recent [8]time.Duration
	count  int
}

func (p *pace) note(took time.Duration) {
	p.recent[p.count%len(p.recent)] = took
	p.count++
}

// typical is the median of the last writes.
func (p *pace) typical() time.Duration {
	some := p.recent
	n := min(p.count, len(some))
	if n == 0 {
		return 0
	}
	sorted := some[:n]
	for i := range sorted {
		for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	return sorted[n/2]
}
