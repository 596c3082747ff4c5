package netns

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/test/cluster"
)

// gossiped encodes a message as memberlist and serf do: a byte for the kind, then
// msgpack.
func gossiped(t *testing.T, kind byte, value any) []byte {
	t.Helper()
	b := bytes.NewBuffer([]byte{kind})
	if err := codec.NewEncoder(b, &codec.MsgpackHandle{}).Encode(value); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// farewell forges what a gateway's gossip says when it leaves: that it does, and that
// it is gone.
func farewell(t *testing.T, name string) [][]byte {
	t.Helper()
	const (
		memberlistDead, memberlistUser = 5, 8
		serfLeave                      = 0
	)
	leave := gossiped(t, serfLeave, struct {
		LTime uint64
		Node  string
	}{1 << 20, name})
	gone := gossiped(t, memberlistDead, struct {
		Incarnation uint32
		Node, From  string
	}{1 << 20, name, name})
	return [][]byte{append([]byte{memberlistUser}, leave...), gone}
}

// gossip sends a packet of gossip as a gateway that nobody knows, to a peer port without TLS.
func gossip(to *cluster.Gateway, packet []byte) error {
	conn, err := net.Dial("tcp", to.Peer)
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := wire.Hello{Name: "forger", Boot: rand.Text(), Addr: "192.0.2.1:1", To: to.Name, Number: 1}
	opening := hello.Append([]byte{'k', 'g', 'a', 't', wire.Version, 1, 0, 0})
	frame := append([]byte{0, byte(2 + len(packet)), 2, byte(wire.Gossip)}, packet...) // a short datagram
	if _, err := conn.Write(append(opening, frame...)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 100)) // its answer, hello and ping
	return err
}

// TestForgedFarewell cuts a gateway off and has another machine forge its farewell in
// gossip. Its requests outlast its lease, and the others believe that it has left; its
// slots are given to nobody as long as it may use them.
func TestForgedFarewell(t *testing.T) {
	cluster.OnlySoak(t, "takes half a minute")
	const lease = 7 * time.Second // requests of the long pool take three of them
	w := newWorldIn(t, New(t, size), lease)
	w.cluster.Causes("upstream is silent") // for as long as these requests take
	cluster.Span(t, 3*time.Second)
	roles, err := w.cluster.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := other(roles.Leader, roles.Home)
	victim := w.cluster.Gateways[i]
	w.Set(t, Split(Drop, []int{i}, Without(size, i))...)
	forger := other(i, roles.Leader)
	for _, at := range Without(size, i) {
		for _, packet := range farewell(t, victim.Name) {
			err := inside(w.gateway(forger), func() error {
				return gossip(w.cluster.Gateways[at], packet)
			})
			if err != nil {
				t.Fatal(err)
			}
			cluster.Span(t, 50*time.Millisecond)
		}
	}
	cluster.Span(t, lease+4*time.Second)
	believed := false
	for _, r := range w.cluster.Gateways[roles.Leader].Log.Records("gateway observed") {
		believed = believed || r.Text("name") == victim.Name && r.Text("status") == "left"
	}
	if !believed {
		t.Error("gossip at the leader does not believe the farewell: nothing is tested")
	}
	_, most, _ := w.judge.Counts()
	_, mostLong, _ := w.long.Counts()
	t.Logf("most in flight %d (k %d) and %d (k %d)", most, k, mostLong, longK)
	w.checkBound(t)
}
