package membership

import (
	"log/slog"
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
//     new connections it is six, with TLS. It is waited for as long as that, and
//     given up at once when the leader is gone or another one is known.
//   - A call on a new connection is three round trips and more with TLS.
const (
	// leastTimeout of raft's, and mostTimeout: longer leases do not mean slower
	// elections.
	leastTimeout = 50 * time.Millisecond
	mostTimeout  = time.Second
	// lookAgain is how often the state is looked at if nothing tells of a change.
	lookAgain = time.Second
	// cleanAfter is how long the raft server of a lost gateway is kept for its return.
	cleanAfter = time.Minute
	// closeTime is how long the connections that a gateway closes at the end of its
	// lease may take to be gone.
	closeTime = 150 * time.Millisecond
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
// there: TCP's and TLS's handshakes are in it.
func probeTimeout(lease time.Duration) time.Duration {
	return min(max(lease/4, 300*time.Millisecond), mostTimeout)
}

// renewTimeout is how long a renewal is waited for.
func renewTimeout(lease time.Duration) time.Duration { return lease * 4 / 5 }

// lease returns the agreed lease; as long as none is agreed, the configured one.
func (n *raftNode) lease() time.Duration {
	if agreed := n.View().Lease; agreed > 0 {
		return agreed
	}
	return n.config.Lease
}

// raftTimeout is raft's heartbeat and election timeout, with room for the disk: whoever
// votes or takes entries in answers when they are written. It grows to the length of a
// lease at most, and then a change of the leader costs leases.
func (n *raftNode) raftTimeout() time.Duration {
	agreed := n.lease()
	if !n.roll.called() || n.roll.behind() != nil {
		// No election yet. A shorter timeout would begin one at once, and an only voter wins it.
		return 2 * agreed
	}
	return max(raftTimeout(agreed), raftTimeout(n.config.Lease), min(writesInTimeout*n.disk.typical(), agreed))
}

// callTimeout bounds one call to another gateway.
func (n *raftNode) callTimeout() time.Duration { return callTimeout(n.config.Lease) }

// votesTime is how long votes take that go over connections, and then to the disk.
func (n *raftNode) votesTime() time.Duration {
	return max(votesTime(n.lease()), min(writesInTimeout*n.disk.typical(), n.lease()))
}

// writesInTimeout is how many writes to the disk have room in a timeout of raft's: the
// candidate's, a voter's, and as much again for the time between them.
const writesInTimeout = 4

// tuneRaft has raft's timeouts follow the agreed lease, where the configuration has
// another one, and the disk.
func (n *raftNode) tuneRaft() {
	agreed := n.lease()
	if agreed != n.config.Lease && n.once.First("lease "+agreed.String()) {
		n.config.Logger.Warn("the cluster has agreed on another lease: cluster.lease of this gateway does not apply",
			slog.Duration("agreed", agreed), slog.Duration("configured", n.config.Lease),
			slog.String("hint", "set cluster.lease to the agreed one; another lease needs a new cluster"))
	}
	timeouts, want := n.raft.ReloadableConfig(), n.raftTimeout()
	if change := want - timeouts.HeartbeatTimeout; change.Abs() < timeouts.HeartbeatTimeout/4 {
		return
	}
	timeouts.HeartbeatTimeout, timeouts.ElectionTimeout = want, want
	if err := n.raft.ReloadConfig(timeouts); err != nil && n.once.First("raft's timeouts") {
		n.config.Logger.Warn("raft keeps its timeouts", slog.Any("error", err))
	}
}
