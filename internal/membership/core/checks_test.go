package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/kmutex"
)

// raftMessage returns one of a term, with entries of these terms behind index 5.
func raftMessage(kind pb.MessageType, term uint64, entries ...uint64) *pb.Message {
	m := &pb.Message{Type: kind.Enum(), From: new(uint64(7)), To: new(uint64(8)), Term: new(term), Index: new(uint64(5)), LogTerm: new(uint64(1))}
	for i, t := range entries {
		m.Entries = append(m.Entries, &pb.Entry{Type: pb.EntryNormal.Enum(), Index: new(6 + uint64(i)), Term: new(t)})
	}
	return m
}

// What raft, or who applies its entries, would take amiss is no message.
func TestHostileMessages(t *testing.T) {
	gap := raftMessage(pb.MsgApp, 2, 2, 2)
	gap.Entries[1].Index = new(uint64(9))
	kind := raftMessage(pb.MsgApp, 2, 2)
	kind.Entries[0].Type = pb.EntryConfChange.Enum()
	servers := raftMessage(pb.MsgApp, 2, 2)
	servers.Entries[0].Type, servers.Entries[0].Data = pb.EntryConfChangeV2.Enum(), []byte("\xff\xff")
	snapshot := func(index, term uint64, voters ...uint64) *pb.Message {
		m := raftMessage(pb.MsgSnap, 2)
		m.Snapshot = &pb.Snapshot{Data: []byte(`{"views":{},"servers":[]}`), Metadata: &pb.SnapshotMetadata{Index: new(index), Term: new(term), ConfState: &pb.ConfState{Voters: voters}}}
		return m
	}
	nonsense := snapshot(9, 2, 7)
	nonsense.Snapshot.Data = []byte("nonsense")
	for what, m := range map[string]*pb.Message{
		"a term that raft cannot go on from": raftMessage(pb.MsgHeartbeat, maxTerm+1),
		"a log of a later term":              {Type: pb.MsgVote.Enum(), Term: new(uint64(2)), Index: new(uint64(5)), LogTerm: new(uint64(3))},
		"an entry of a later term":           raftMessage(pb.MsgApp, 2, 3),
		"entries with a gap":                 gap,
		"an entry of another kind":           kind,
		"servers that cannot be read":        servers,
		"raft's own":                         raftMessage(pb.MsgHup, 2),
		"a snapshot of nothing":              snapshot(0, 2, 7),
		"a snapshot of a later term":         snapshot(9, 3, 7),
		"a snapshot without voters":          snapshot(9, 2),
		"a snapshot that cannot be read":     nonsense,
	} {
		data, err := Message{raft: m}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMessage(data); !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, m := range []*pb.Message{raftMessage(pb.MsgApp, 2, 1, 2), snapshot(9, 2, 7)} {
		data, err := Message{raft: m}.Encode()
		if err == nil {
			_, err = DecodeMessage(data)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// A trouble is said when it has lasted, and again when it has lasted again a minute later.
func TestTroublesLast(t *testing.T) {
	w := &warnings{}
	var said []int
	for _, at := range []int{0, 1, 2, 3, 4, 80, 81, 82, 83} { // seconds
		if w.lasts("kept out", time.Duration(at)*time.Second) {
			said = append(said, at)
		}
	}
	if !slices.Equal(said, []int{3, 83}) {
		t.Errorf("said at %v", said)
	}
}

// A gateway that leaves has let go of its links, and complains of nobody.
func TestWhoLeavesComplainsOfNobody(t *testing.T) {
	c, err := New(Config{Stored: NewStored(7, "a"), Name: "a", Boot: "x", Lease: time.Second}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c.peers.down = map[kmutex.Node]time.Duration{3: 0}
	c.self.missing = map[kmutex.Node]time.Duration{4: 0}
	if r := c.report(); !slices.Equal(r.Down, []kmutex.Node{3}) || !slices.Equal(r.Missing, []kmutex.Node{4}) {
		t.Errorf("%+v", r)
	}
	c.leaving = true
	if r := c.report(); len(r.Down)+len(r.Missing) > 0 {
		t.Errorf("%+v", r)
	}
}

// A process that asks to join believes the newest word of who leads, however many older ones differ.
func TestNewestWordOfTheLeader(t *testing.T) {
	c, err := New(Config{Stored: NewStored(7, "a"), Name: "a", Boot: "x", Lease: time.Second}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for id := ID(1); id <= 5; id++ {
		c.peers.conns[id] = &conn{hello: &Hello{Cluster: "c", Leader: 5}, heard: time.Second}
	}
	c.peers.conns[5] = &conn{hello: &Hello{Cluster: "c", Leader: 4}, heard: 2 * time.Second}
	asked := make(map[ID]int)
	for range 100 {
		asked[c.knownLeader()]++
	}
	if asked[4] < 60 || len(asked) != 5 {
		t.Errorf("asked how often: %v", asked)
	}
}
