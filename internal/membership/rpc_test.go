package membership

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
)

// asServer is the header of what a raft server sends.
func asServer(id, addr string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(address(addr, id))}
}

// attacker speaks raft to the gateways of a test, in whatever name.
func (n *network) attacker(t *testing.T, cluster string) *raft.NetworkTransport {
	t.Helper()
	n.note("attacker", "")
	s := newRaftStream(layer{n.listen(t, ""), n, "attacker", n.raftAddr}, func() string { return cluster },
		func(net.Conn, string, string) error { return nil }, time.Second, slog.New(slog.DiscardHandler))
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: 0, MaxRPCsInFlight: 1, Timeout: time.Second, Logger: hclog.NewNullLogger(),
	})
	t.Cleanup(func() { _ = trans.Close() })
	return trans
}

// TestHostileRPC: who can speak raft as one of the voters, and sends what no honest one
// does, changes nothing: not the term, not the leader, and not after a restart.
func TestHostileRPC(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		root := t.TempDir()
		dirs := func(name string) string { return filepath.Join(root, name) }
		three := n.three(t, dirs)
		for _, g := range three {
			g.ready()
		}
		leader := leaderOf(t, three)
		before := leader.raft.CurrentTerm()
		evil := n.attacker(t, leader.storage.clusterID())
		for _, as := range three {
			header := asServer(as.stats().Server, as.peerAddr)
			for _, to := range three {
				id, addr := raft.ServerID(to.stats().Server), address(to.peerAddr, to.stats().Server)
				for _, term := range []uint64{math.MaxUint64, math.MaxUint64 - 1, maxTerm, before + maxTermStep + 100} {
					calls := map[string]error{
						"RequestVote": evil.RequestVote(id, addr, &raft.RequestVoteRequest{
							RPCHeader: header, Term: term, LastLogIndex: math.MaxUint64, LastLogTerm: term, LeadershipTransfer: true,
						}, new(raft.RequestVoteResponse)),
						"RequestPreVote": evil.RequestPreVote(id, addr, &raft.RequestPreVoteRequest{RPCHeader: header, Term: term}, new(raft.RequestPreVoteResponse)),
						"AppendEntries":  evil.AppendEntries(id, addr, &raft.AppendEntriesRequest{RPCHeader: header, Term: term}, new(raft.AppendEntriesResponse)),
						"InstallSnapshot": evil.InstallSnapshot(id, addr, &raft.InstallSnapshotRequest{
							RPCHeader: header, Term: term, SnapshotVersion: 1, LastLogIndex: 9999,
							Configuration: raft.EncodeConfiguration(raft.Configuration{}),
						}, new(raft.InstallSnapshotResponse), bytes.NewReader(nil)),
						"bad configuration": evil.AppendEntries(id, addr, &raft.AppendEntriesRequest{
							RPCHeader: header, Term: before, PrevLogEntry: 1, PrevLogTerm: 1,
							Entries: []*raft.Log{{Index: 2, Term: before, Type: raft.LogConfiguration, Data: []byte("nonsense")}},
						}, new(raft.AppendEntriesResponse)),
					}
					for name, err := range calls {
						if err == nil {
							t.Errorf("%s of term %d as %s to %s is answered", name, term, as.name, to.name)
						}
					}
				}
				if as != leader && as != to {
					if err := evil.TimeoutNow(id, addr, &raft.TimeoutNowRequest{RPCHeader: header}, new(raft.TimeoutNowResponse)); err == nil {
						t.Errorf("TimeoutNow as %s, who does not lead, to %s is answered", as.name, to.name)
					}
				}
			}
		}
		if now := leaderOf(t, three); now != leader || now.raft.CurrentTerm() != before {
			t.Errorf("%s leads in term %d; before, %s in %d", now.name, now.raft.CurrentTerm(), leader.name, before)
		}
		define(t, three[0], "p", 3)
		agree(t, three, "a", "b", "c")
		for _, g := range three {
			g.kill()
		}
		three = n.three(t, dirs)
		for _, g := range three {
			g.ready()
		}
		define(t, three[1], "q", 3)
	})
}

// TestSpeaksForItself: over TLS a raft message has to come from the gateway in whose
// name it is.
func TestSpeaksForItself(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		term := g.raft.CurrentTerm()
		for _, c := range []struct {
			what   string
			caller *tls.ConnectionState
			header raft.RPCHeader
			ok     bool
		}{
			{"its own name", by("b"), asServer("b/1", "x:1"), true},
			{"another's name", by("c"), asServer("b/1", "x:1"), false},
			{"another's address", by("b"), raft.RPCHeader{ID: []byte("b/1"), Addr: []byte(address("x:1", "c/1"))}, false},
			{"no name", by("b"), raft.RPCHeader{}, false},
			{"no certificate", &tls.ConnectionState{}, asServer("b/1", "x:1"), false},
			{"no TLS", nil, asServer("b/1", "x:1"), true},
		} {
			for _, message := range []raft.WithRPCHeader{
				&raft.RequestVoteRequest{RPCHeader: c.header, Term: term},
				&raft.RequestPreVoteRequest{RPCHeader: c.header, Term: term},
				&raft.AppendEntriesRequest{RPCHeader: c.header, Term: term - 1}, // this one leads the present one
			} {
				if err := g.guard.judgeRPC(c.caller, message); (err == nil) != c.ok || !c.ok && !errors.Is(err, errRPC) {
					t.Errorf("%s, %T: %v", c.what, message, err)
				}
			}
		}
		for _, answer := range []uint64{math.MaxUint64, maxTerm + 1, term + maxTermStep + 1} {
			if err := (retryTransport{n: g.raftNode}).answer(nil, &answer); err == nil || answer != 0 {
				t.Errorf("an answer in term %d: %v", answer, err)
			}
		}
	})
}

// frame encodes a message as raft's transport does.
func frame(t testing.TB, kind byte, message any) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteByte(kind)
	if err := codec.NewEncoder(&b, &codec.MsgpackHandle{}).Encode(message); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// raftReads reads messages as raft's transport does, and returns how many it got.
func raftReads(conn net.Conn) (count int) {
	r := bufio.NewReader(conn)
	dec := codec.NewDecoder(r, &codec.MsgpackHandle{})
	for {
		kind, err := r.ReadByte()
		if err != nil {
			return count
		}
		message, err := newMessage(kind)
		if err != nil || dec.Decode(message) != nil {
			return count
		}
		if s, ok := message.(*raft.InstallSnapshotRequest); ok {
			if n, _ := io.Copy(io.Discard, io.LimitReader(r, s.Size)); n < s.Size {
				return count
			}
		}
		count++
	}
}

// byteConn is a connection that bytes come from.
type byteConn struct {
	net.Conn
	r io.Reader
}

func (c byteConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// FuzzRaftMessages: raft gets what was let through, byte by byte, and nothing else.
func FuzzRaftMessages(f *testing.F) {
	header := asServer("b/1", "x:1")
	good := [][]byte{
		frame(f, rpcRequestVote, &raft.RequestVoteRequest{RPCHeader: header, Term: 3, LastLogIndex: 4, LastLogTerm: 2}),
		frame(f, rpcAppendEntries, &raft.AppendEntriesRequest{RPCHeader: header, Term: 3, PrevLogEntry: 1, PrevLogTerm: 1, Entries: []*raft.Log{
			{Index: 2, Term: 3, Data: []byte("x")}, {Index: 3, Term: 3, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})},
		}}),
		frame(f, rpcRequestPreVote, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 3}),
		frame(f, rpcTimeoutNow, &raft.TimeoutNowRequest{RPCHeader: header}),
		append(frame(f, rpcInstallSnapshot, &raft.InstallSnapshotRequest{
			RPCHeader: header, Term: 3, SnapshotVersion: 1, Size: 5, Configuration: raft.EncodeConfiguration(raft.Configuration{}),
		}), "hello"...),
	}
	all := bytes.Join(good, nil)
	for _, seed := range append(good, all, []byte{rpcRequestVote, 0xdf, 0xff, 0xff, 0xff, 0xff}, []byte{rpcAppendEntries, 0x81, 0xa7, 'E', 'n', 't', 'r', 'i', 'e', 's', 0xdd, 0xff, 0xff, 0xff, 0xff}) {
		f.Add(seed)
	}
	if n := raftReads(newRPCConn(byteConn{r: bytes.NewReader(all)}, func(raft.WithRPCHeader) error { return nil })); n != len(good) {
		f.Fatalf("%d of %d messages got through", n, len(good))
	}
	closing, stop := context.WithCancel(context.Background())
	f.Cleanup(stop)
	g := &rpcGuard{raftNode: &raftNode{up: make(chan struct{}), closing: closing, roll: rollCall{closing: closing, over: make(chan struct{})}}}
	close(g.roll.over)
	f.Fuzz(func(t *testing.T, data []byte) {
		judged := 0
		through := newRPCConn(byteConn{r: bytes.NewReader(data)}, func(m raft.WithRPCHeader) error {
			if _, ok := m.(*raft.TimeoutNowRequest); ok {
				return nil
			}
			err := g.judgeRPC(nil, m)
			if err == nil {
				judged++
			}
			return err
		})
		if n := raftReads(through); n > judged+bytes.Count(data, []byte{rpcTimeoutNow}) {
			t.Errorf("raft got %d messages, %d were let through", n, judged)
		}
	})
}
