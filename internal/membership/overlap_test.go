package membership

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// voting are three voters that agree on a pool p with k 2.
func (n *network) voting(t *testing.T, lease time.Duration) (leader *gateway, rest []*gateway) {
	t.Helper()
	root := t.TempDir()
	three := n.leased(t, lease, func(name string) string { return filepath.Join(root, name) })
	define(t, three[0], "p", 2)
	settle(t, three)
	leader = leaderOf(t, three)
	until(t, "three voters", func() bool { names, _ := leader.Voting(); return len(names) == 3 })
	agree(t, three, "a", "b", "c")
	return leader, without(three, leader)
}

// TestRewritten: a gateway whose leader sends another entry in place of an agreed one ends, and does
// not take it.
func TestRewritten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		leader, rest := n.voting(t, 3*time.Second)
		evil := n.attacker(t, leader.storage.clusterID())
		for i, g := range rest {
			at := g.machine.newestCheckpoint().Index
			var before raft.Log
			if err := g.storage.logs.GetLog(at-1, &before); err != nil {
				t.Fatal(err)
			}
			term := []uint64{leader.raft.CurrentTerm(), 1}[i]
			m := &raft.AppendEntriesRequest{
				RPCHeader: asServer(leader.stats().Server, leader.peerAddr), Term: leader.raft.CurrentTerm(), PrevLogEntry: at - 1, PrevLogTerm: before.Term,
				Entries: []*raft.Log{entryOf(t, at, term, setK("p", 50))},
			}
			server := g.stats().Server
			if evil.AppendEntries(raft.ServerID(server), address(g.peerAddr, server), m, new(raft.AppendEntriesResponse)) == nil {
				t.Errorf("%s takes another entry", g.name)
			}
			select {
			case err := <-g.Failed():
				t.Log(err)
			case <-time.After(time.Second):
				t.Error("it goes on with what nobody else has")
			}
			if kOf(g) != 2 {
				t.Errorf("%s has k %d", g.name, kOf(g))
			}
		}
	})
}

// TestMuteLeader: a leader that was elected, and renews no leases, is replaced.
func TestMuteLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		leader, rest := n.voting(t, 2*time.Second) // so long that only the renewals tell: the mute one sends heartbeats
		mute, other := rest[0], rest[1]
		mute.leaving.Store(true) // it neither serves leases nor judges
		server := mute.stats().Server
		until(t, "the mute one leads", func() bool {
			if leader.stats().Role == "leader" { // raft gives a transfer little time
				leader.ops.Lock()
				_ = leader.raft.LeadershipTransferToServer(raft.ServerID(server), address(mute.peerAddr, server)).Error()
				leader.ops.Unlock()
			}
			return mute.stats().Role == "leader"
		})
		began := time.Now()
		until(t, "another one leads, and both stand", func() bool {
			now := time.Now()
			return mute.stats().Role != "leader" && leader.Standing().Valid(now) && other.Standing().Valid(now)
		})
		t.Logf("after %v", time.Since(began).Round(time.Millisecond))
	})
}
