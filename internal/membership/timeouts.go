package membership

import (
	"time"
)

// Timeouts follow from the lease. What counts is how they compare with a round trip
// to another gateway: with the default lease of 3 s all of them leave room for one
// of 300 ms, a tenth of the lease.
//
//   - Raft's heartbeats follow each other in a round trip and a fifth of
//     HeartbeatTimeout. A third of the lease leaves room for packets that come late,
//     and a change of the leader still costs nobody its lease. Elections wait that
//     long only if nobody notices earlier that the leader is gone: see elections.
//   - A renewal is a round trip to the leader, and one from there to the voters. On
//     new connections it is eight, with TLS. It is waited for as long as that, and
//     given up at once when the leader is gone or another one is known.
//   - A dial is three round trips with TLS: TCP's handshake, TLS's, and the stream's first
//     answer. A call on a new connection is four.
const (
	// leastTimeout of raft's, and mostTimeout: longer leases do not mean slower
	// elections.
	leastTimeout = 50 * time.Millisecond
	mostTimeout  = time.Second
	// lookAgain is how often the state is looked at if nothing tells of a change.
	lookAgain = time.Second
	// leaderlessAfter is how long there may be no leader until people who wait for a change are
	// told so. Elections are over by then.
	leaderlessAfter = 3 * time.Second
)

// raftTimeout is raft's heartbeat, election and leader lease timeout.
func raftTimeout(lease time.Duration) time.Duration {
	return min(max(lease/3, leastTimeout), mostTimeout)
}

// votesTime is how long votes take that go over connections.
func votesTime(lease time.Duration) time.Duration {
	return min(max(lease/5, leastTimeout), mostTimeout)
}

// callTimeout bounds one call to another gateway.
func callTimeout(lease time.Duration) time.Duration {
	return min(max(lease/2, time.Second), 5*time.Second)
}

// probeTimeout is how long a dial may take that is to show whether a gateway is
// there. The loss of a host shows only after it, so it is short; but where TCP's handshake
// has taken a long trip, there is time for the two that follow, and for one more.
func probeTimeout(lease, trip time.Duration) time.Duration {
	return max(min(max(lease/4, 300*time.Millisecond), mostTimeout), min(4*trip, reachTimeout(lease)))
}

// reachTimeout is how long the dial of a gateway may take that asks to be let in, or by it.
// It has room for three round trips and one more.
func reachTimeout(lease time.Duration) time.Duration {
	return min(max(lease*2/5, 300*time.Millisecond), 5*time.Second)
}

// echoTimeout is how long long packets may take there and back, beside those for up to
// six others on a line of 256 kbit/s and with the usual lease.
func echoTimeout(lease time.Duration) time.Duration {
	return min(max(lease*3/5, 300*time.Millisecond), 5*time.Second)
}

// renewTimeout is how long a renewal is waited for.
func renewTimeout(lease time.Duration) time.Duration { return lease * 4 / 5 }

// writesInTimeout is how many writes to the disk have room in a timeout of raft's: the
// candidate's, a voter's, and as much again for the time between them.
const writesInTimeout = 4

// soon is the pause before something that is about to be ready is tried again.
const soon = 50 * time.Millisecond
