package serfring

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

// thief is a serf agent of somebody who has a gossip key.
func thief(t *testing.T, key []byte) *serf.Serf {
	t.Helper()
	ring, err := memberlist.NewKeyring([][]byte{key}, key)
	if err != nil {
		t.Fatal(err)
	}
	c := serf.DefaultConfig()
	c.NodeName = "thief"
	c.LogOutput, c.Logger = nil, log.New(io.Discard, "", 0)
	m := memberlist.DefaultLocalConfig()
	m.BindAddr, m.BindPort, m.AdvertisePort = "127.0.0.1", 0, 0
	m.LogOutput, m.Logger = nil, c.Logger
	m.Keyring = ring
	c.MemberlistConfig = m
	s, err := serf.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestKeysAreNotForTheAsking: who has the old key while it is replaced learns no other
// one, and leaves none behind.
func TestKeysAreNotForTheAsking(t *testing.T) {
	old, next, own := bytes.Repeat([]byte{1}, KeySize), bytes.Repeat([]byte{2}, KeySize), bytes.Repeat([]byte{3}, KeySize)
	conf := base("a", "1")
	conf.Keys = [][]byte{old, next}
	a := start(t, conf)
	s := thief(t, old)
	if _, err := s.Join([]string{a.Addr()}, true); err != nil {
		t.Fatal(err)
	}
	until(t, "it is seen", func() bool { return len(a.Members()) == 2 })
	target := address(t, s, "a")

	shown, err := s.KeyManager().ListKeys()
	if err == nil && shown.NumNodes == 2 && shown.NumResp < 2 {
		t.Logf("%d of %d have answered", shown.NumResp, shown.NumNodes)
	}
	if n := shown.Keys[base64.StdEncoding.EncodeToString(next)]; n > 0 {
		t.Errorf("%d show the new key", n)
	}
	_, _ = s.KeyManager().InstallKey(base64.StdEncoding.EncodeToString(own)) // its error is that others do not answer
	if err := s.UserEvent("e", []byte("p"), false); err != nil {
		t.Fatal(err)
	}
	nowhere, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	relay := encoded(t, 9, struct {
		DestAddr net.Addr
		DestName string
	}{nowhere.LocalAddr(), "x"})
	if err := s.Memberlist().SendReliable(target, append(relay, "passed on"...)); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		join := encoded(t, kindJoin, struct {
			LTime uint64
			Node  string
		}{1, fmt.Sprintf("stranger-%d", i)})
		if err := s.Memberlist().SendReliable(target, join); err != nil {
			t.Fatal(err)
		}
	}
	// By then the rest has arrived, too.
	if err := s.SetTags(map[string]string{tagBoot: "2"}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is heard", func() bool { return a.Members()[1].Boot == "2" })

	if keys := a.keyring.GetKeys(); len(keys) != 2 {
		t.Errorf("it uses %d keys, not its two", len(keys))
	}
	stats := a.serf.Stats()
	for _, queue := range []string{"event_queue", "query_queue"} {
		if stats[queue] != "0" {
			t.Errorf("%s: %s", queue, stats[queue])
		}
	}
	if n := len(stats["intent_queue"]); n > 1 {
		t.Errorf("it passes on %s messages about strangers", stats["intent_queue"])
	}
	if err := nowhere.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := nowhere.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("it has sent %d bytes where it was told to", n)
	}
}

func address(t *testing.T, s *serf.Serf, name string) *memberlist.Node {
	t.Helper()
	for _, n := range s.Memberlist().Members() {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("it does not see %s", name)
	return nil
}

// received notes what serf would have got.
type received struct {
	memberlist.Delegate
	messages, states [][]byte
}

func (r *received) NotifyMsg(b []byte)                { r.messages = append(r.messages, b) }
func (r *received) MergeRemoteState(b []byte, _ bool) { r.states = append(r.states, b) }

// TestFilter: serf stores every name that it reads in a message, so it gets only messages
// about members.
func TestFilter(t *testing.T) {
	a := &Agent{heard: map[string]time.Time{"known": {}}}
	var got received
	f := filter{&got, a}
	type intent struct {
		LTime uint64
		Node  string
		Prune bool
	}
	for _, kind := range []byte{kindLeave, kindJoin} {
		f.NotifyMsg(encoded(t, kind, intent{Node: "known"}))
		f.NotifyMsg(encoded(t, kind, intent{Node: "stranger"}))
		f.NotifyMsg(encoded(t, kind, intent{Node: "known", Prune: true}))
		f.NotifyMsg([]byte{kind, 0xc1})
	}
	for kind := byte(kindState); kind < 12; kind++ {
		f.NotifyMsg(encoded(t, kind, intent{Node: "known"}))
	}
	f.NotifyMsg(nil)
	if len(got.messages) != 2 {
		t.Errorf("%d messages, not a join and a farewell", len(got.messages))
	}

	sent := struct {
		LTime        uint64
		StatusLTimes map[string]uint64
		LeftMembers  []string
		Events       []any
	}{7, map[string]uint64{"known": 3, "stranger": 4}, []string{"known", "stranger"}, []any{nil, map[string]any{"LTime": 3, "Events": []any{}}}}
	f.MergeRemoteState(encoded(t, kindState, sent), true)
	for _, junk := range [][]byte{nil, {kindState}, {kindJoin, 0x80}, {kindState, 0xdf, 0xff, 0xff, 0xff, 0xff}} {
		f.MergeRemoteState(junk, true)
	}
	if len(got.states) != 1 {
		t.Fatalf("%d states", len(got.states))
	}
	var have struct {
		LTime        uint64
		StatusLTimes map[string]uint64
		LeftMembers  []string
		Events       []any
	}
	if err := codec.NewDecoderBytes(got.states[0][1:], &codec.MsgpackHandle{}).Decode(&have); err != nil {
		t.Fatal(err)
	}
	if have.LTime != 7 || len(have.StatusLTimes) != 1 || have.StatusLTimes["known"] != 3 || !slices.Equal(have.LeftMembers, []string{"known"}) || len(have.Events) > 0 {
		t.Errorf("%+v", have)
	}
}

// TestNamesAreBounded: names that never become members go when room is needed.
func TestNamesAreBounded(t *testing.T) {
	a := &Agent{heard: map[string]time.Time{}, members: map[string]Member{"member": {}}}
	tell := func(name string) error { return (*newcomers)(a).NotifyAlive(&memberlist.Node{Name: name}) }
	for i := range mostMembers - 1 {
		if err := tell(fmt.Sprintf("ghost-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tell("member"); err != nil {
		t.Fatal(err)
	}
	if err := tell("another"); err == nil || len(a.heard) != mostMembers {
		t.Fatalf("%d names, error %v", len(a.heard), err)
	}
	for name := range a.heard {
		a.heard[name] = time.Now().Add(-2 * forgetAfter)
	}
	if err := tell("ghost-1"); err != nil {
		t.Errorf("a known name: %v", err)
	}
	a.forgot = time.Time{}
	if err := tell("another"); err != nil {
		t.Error(err)
	}
	if len(a.heard) != 3 || !a.heardOf("member") || !a.heardOf("ghost-1") || !a.heardOf("another") {
		t.Errorf("%d names are left", len(a.heard))
	}
}

// TestStrangersLogLittle: what a stranger chooses does not make it another cause to log.
func TestStrangersLogLittle(t *testing.T) {
	for _, line := range []string{
		"discarding packet with unacceptable label %q: from=127.0.0.1:1",
		"Got ping for unexpected node '%s' from=127.0.0.1:1",
		"Got ping for unexpected node %s from=127.0.0.1:1",
		"ignoring alive message for '%s': too much",
		"Failed to decode ping request: %s",
	} {
		if one, other := cause(fmt.Sprintf(line, "x y: z")), cause(fmt.Sprintf(line, "bcd'")); one != other {
			t.Errorf("two causes: %q and %q", one, other)
		}
	}
	var log lines
	conf := base("a", "1")
	conf.Keys, conf.Logger = [][]byte{bytes.Repeat([]byte{1}, KeySize)}, log.logger()
	a := start(t, conf)
	conn, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 600 {
		if _, err := fmt.Fprintf(conn, "\xf4\x02%c%cx", 'a'+i%26, 'a'+i/26); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it has logged one", func() bool { return log.count("unacceptable label") > 0 })
	late := base("b", "1", a.Addr())
	late.Keys = conf.Keys
	sees(t, start(t, late), "a/1/alive", "b/1/alive")
	if n := log.count("unacceptable label"); n > 1 {
		t.Errorf("it has logged %d lines", n)
	}
}
