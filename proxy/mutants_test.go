package proxy

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Defects of TCP connections, and of how upstreams are chosen and found, are caught.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{
		Mutants: []mutant.Mutant{
			{
				Name: "the slot is given back before the upstream is closed", File: "tcp_session.go",
				Old: "	defer se.slot.Release()", New: "	se.slot.Release()",
				By: "^TestTCPWaits$", Caught: "slots held",
			},
			{
				Name: "a client that leaves the line is not noticed", File: "tcp_session.go",
				Old: "func() { se.cancel(errLeft) }", New: "func() {}",
				By: "^TestTCPClientLeavesLine$", Caught: "slots held",
			},
			{
				Name: "whoever is refused sees an end in order", File: "conn.go",
				Old: "		_ = tcp.SetLinger(0)", New: "		_ = tcp",
				By: "^TestTCPRefused$", Caught: "want a reset",
			},
			{
				Name: "nobody asks before a write", File: "tcp_session.go",
				Old: "		return t.Check()", New: "		return nil",
				By: "^TestTCPAsleep$", Caught: "FAIL: TestTCPAsleep",
			},
			{
				Name: "the client's end is not passed on", File: "tcp_session.go",
				Old: "		return t.CloseWrite()", New: "		return nil",
				By: "^TestTCPSaidAll$", Caught: "i/o timeout",
			},
			{
				Name: "a client may keep the slot after the upstream's end", File: "tcp_session.go",
				Old: "		se.ended.Store(true)\n		_ = se.conn.raw.SetReadDeadline(time.Now().Add(endTime))", New: "		se.ended.Store(true)",
				By: "^TestTCPSilentAfterTheEnd$", Caught: "slots held",
			},
			{
				Name: "a lost slot does not end the connection", File: "tcp_session.go",
				Old: "	se.hold.begin(se.cut)", New: "	se.hold.begin(func(*abortCause) {})",
				By: "^TestTCP(SlotLost|Hold)$", Caught: "connections are open|want a reset",
			},
			{
				Name: "what was read to find the pool is forgotten", File: "tcp_session.go",
				Old: "	err := s.Write(se.said)", New: "	err := s.Write(nil)",
				By: "^TestTCPServerName$", Caught: "FAIL: TestTCPServerName",
			},
			{
				Name: "a backup is used like the others", File: "balancer.go",
				Old: "		case u.backup != backup, slices.Contains(tried, u)", New: "		case slices.Contains(tried, u)",
				By: "^TestBackup$", Caught: "used map",
			},
			{
				Name: "a name is not looked up again", File: "upstream/pool.go",
				Old: "		c.followLocked()\n", New: "",
				By: "^TestNameFollowed$", Caught: "requests still go to the old address",
			},
		},
	}.Run(t)
}
