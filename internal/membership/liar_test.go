package membership

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/raftfile"
)

// lies lets the holder of a gateway's certificate answer in its place.
func lies(t *testing.T, g *gateway, path string, answer http.HandlerFunc) {
	t.Helper()
	if raceDetector {
		t.Skip("another handler for a server that runs: the race detector would see this race of the test")
	}
	honest := g.control.Handler
	g.control.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			answer(w, r)
			return
		}
		honest.ServeHTTP(w, r)
	})
}

// overstates lets a gateway say that more is agreed on than is.
func overstates(t *testing.T, g *gateway, p raftfile.Position) {
	t.Helper()
	lies(t, g, pathIdentity, func(w http.ResponseWriter, _ *http.Request) {
		id := g.peers.identity()
		id.Agreed = p
		writeJSON(w, http.StatusOK, id)
	})
}

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

// TestOverstatedRollCall: one of three voters says that more is agreed on than is, and
// leads nobody. The two others restart, and lead after a while.
func TestOverstatedRollCall(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		leader, rest := n.voting(t, 500*time.Millisecond)
		other, liar := rest[0], rest[1]
		overstates(t, liar, raftfile.Position{Index: 1 << 40, Term: leader.raft.CurrentTerm()})
		if err := liar.raft.Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		var honest []*gateway
		for _, g := range []*gateway{other, leader} {
			g.kill()
		}
		for _, g := range []*gateway{other, leader} {
			conf := g.config
			conf.join = []string{liar.gossip}
			honest = append(honest, n.start(t, g.name, conf))
		}
		began := time.Now()
		until(t, "one of them waits for the liar", func() bool {
			return slices.ContainsFunc(honest, func(g *gateway) bool { return g.roll.called() && g.roll.behind() != nil })
		})
		leaderOf(t, honest)
		t.Logf("a leader after %v", time.Since(began).Round(time.Millisecond))
		agreeOnK(t, honest[0], "p", 3)
	})
}

// TestSoleVoterAndItsWitness: the only voter believes a gateway that does not vote, as
// nobody else can know, but not what cannot be.
func TestSoleVoterAndItsWitness(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		root := t.TempDir()
		a := n.start(t, "a", config{expect: 1, dir: filepath.Join(root, "a")})
		define(t, a, "p", 2)
		b := n.start(t, "b", config{expect: 1, joining: true, dir: filepath.Join(root, "b"), join: []string{a.gossip}})
		settle(t, []*gateway{a, b})
		overstates(t, b, raftfile.Position{Index: 1 << 40, Term: 1 << 40})
		a.kill()
		conf := a.config
		conf.join = []string{b.gossip}
		a = n.start(t, "a", conf)
		leaderOf(t, []*gateway{a})
		select {
		case err := <-a.Failed():
			t.Error(err)
		default:
		}
	})
}

// TestRewritingLeader: a leader that sends another entry in place of an agreed one ends
// nobody whom most voters agree with, and changes nothing there. One whom nobody agrees
// with ends.
func TestRewritingLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		liar, rest := n.voting(t, 3*time.Second)
		evil := n.attacker(t, liar.storage.clusterID())
		rewrite := func(g *gateway, term uint64) {
			at := g.machine.newestCheckpoint().Index
			var before raft.Log
			if err := g.storage.logs.GetLog(at-1, &before); err != nil {
				t.Fatal(err)
			}
			m := &raft.AppendEntriesRequest{
				RPCHeader: asServer(liar.stats().Server, liar.peerAddr), Term: liar.raft.CurrentTerm(), PrevLogEntry: at - 1, PrevLogTerm: before.Term,
				Entries: []*raft.Log{entryOf(t, at, term, setK("p", 50))},
			}
			server := g.stats().Server
			if evil.AppendEntries(raft.ServerID(server), address(g.peerAddr, server), m, new(raft.AppendEntriesResponse)) == nil {
				t.Errorf("%s takes another entry", g.name)
			}
		}
		for _, g := range rest {
			rewrite(g, liar.raft.CurrentTerm())
			rewrite(g, 1)
		}
		for _, g := range rest {
			select {
			case err := <-g.Failed():
				t.Errorf("%s ends: %v", g.name, err)
			default:
			}
			if kOf(g) != 2 {
				t.Errorf("%s has k %d", g.name, kOf(g))
			}
		}
		rest[1].kill()
		rewrite(rest[0], liar.raft.CurrentTerm())
		select {
		case err := <-rest[0].Failed():
			t.Log(err)
		case <-time.After(time.Second):
			t.Error("it goes on with what nobody else has")
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
				leader.leaders.noteSuccessor(server)
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
