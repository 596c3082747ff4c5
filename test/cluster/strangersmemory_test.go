package cluster

import (
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/internal/transport/wire"
)

// TestStrangersMemory has sixteen strangers ask all that they may, and read nothing, at a gateway without a key.
func TestStrangersMemory(t *testing.T) {
	t.Parallel()
	const most = 70 << 20
	_, url := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{Gateways: 2, K: 1, Upstream: url})
	g := c.Gateways[0]
	for i := range 16 {
		name := "stranger-" + string(rune('a'+i))
		conn, err := net.Dial("tcp", g.Peer)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		hello := wire.Hello{Name: name, Boot: rand.Text(), Addr: "192.0.2.1:1", To: g.Name, Number: 1}
		if _, err := conn.Write(hello.Append(opening(wire.Version))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		flood(t, conn)
	}
	var peak int64
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		rss, err := g.RSS()
		if err != nil {
			t.Fatal(err)
		}
		peak = max(peak, rss)
	}
	t.Logf("it has %d MiB", peak>>20)
	if peak > most {
		t.Errorf("want %d MiB at most", most>>20)
	}
	freshAtRoot(t, c)
}

// flood writes what an end of a connection may write that hears nothing.
func flood(t *testing.T, conn net.Conn) {
	t.Helper()
	w := wire.NewConn(0, true, time.Second)
	for i := range 220 {
		err := w.Call(&wire.Call{Name: []string{"call/fleet/line", "call/line/default", "call/fleet/status"}[i%3], Body: make([]byte, 250)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Call(&wire.Call{Name: "call/gossip", Body: make([]byte, 256<<10)}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	for w.Due() {
		b, _ := w.Fill(0, nil, wire.MaxBatch)
		if _, err := conn.Write(b); err != nil {
			t.Logf("it is given up: %v", err)
			return
		}
	}
}
