package core

import (
	"bytes"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
)

func messages() []Message {
	return []Message{
		{Hello: &Hello{Name: "a", Boot: "x", Addr: "a:1", Cluster: "c", Leader: 7, Sees: []string{"a/x"}, Founders: []Founder{{ID: 7, Name: "a", Addr: "a:1", Voter: true}}}},
		{Join: &Join{Join: views.Join{Name: "a", Boot: "x", PeerAddr: "a:1", Server: "7"}, Reaches: []string{"b"}}},
		{Renew: &Renew{Renewal: lease.Renewal{Node: 7, Tag: 3}}},
		{Grant: &Grant{Renewal: lease.Renewal{Node: 7, Tag: 3}, Applied: views.Checkpoint{Index: 9, Digest: []byte{1}}}},
		{Ask: &Command{Data: []byte("x"), Proof: []byte("y")}},
		{Refusal: &Refusal{Tag: 7, Why: "no"}},
		{Knocks: &views.Join{Name: "a", Boot: "x", PeerAddr: "a:1", Server: "7"}},
		{raft: &pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(7)), To: new(uint64(8)), Term: new(uint64(2)), Index: new(uint64(1)), LogTerm: new(uint64(1))}},
	}
}

// FuzzDecodeMessage: what is no message is refused, and what is one can be said again.
func FuzzDecodeMessage(f *testing.F) {
	for _, m := range messages() {
		data, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"knocks":{"name":"a"},"ask":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeMessage(data)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMessage(again); err != nil {
			t.Errorf("%q: %v", again, err)
		}
	})
}

func TestMessages(t *testing.T) {
	for _, m := range messages() {
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeMessage(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		again, err := got.Encode()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%q became %q, %v", data, again, err)
		}
	}
	for name, m := range map[string]*pb.Message{
		"a term beyond all":         {Type: pb.MsgApp.Enum(), Term: new(uint64(1 << 63))},
		"a log of a later term":     {Type: pb.MsgApp.Enum(), Term: new(uint64(1)), LogTerm: new(uint64(2))},
		"what a process says alone": {Type: pb.MsgHup.Enum()},
		"a write":                   {Type: pb.MsgStorageAppendResp.Enum()},
	} {
		data, err := Message{raft: m}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMessage(data); err == nil {
			t.Errorf("%s is believed", name)
		}
	}
}
