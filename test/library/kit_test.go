package library

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate"
)

// A probe of memberlist that has no answer yet outlives its Shutdown by the rest of the
// probe's interval.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"))
}

// patience bounds what takes no time on a machine that is not busy.
const patience = 20 * time.Second

// lease is one that nodes do not lose because the machine has other work to do.
const lease = 6 * time.Second

// cluster starts nodes that are ready, with one pool of k slots.
func cluster(t *testing.T, nodes, k int, edits ...func(*kgate.Config)) []*kgate.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var all []*kgate.Node
	for i := range nodes {
		cfg := config(fmt.Sprintf("node-%d", i+1), k)
		cfg.Peers.Expect = nodes
		for _, edit := range edits {
			edit(&cfg)
		}
		for _, n := range all {
			cfg.Peers.Join = append(cfg.Peers.Join, n.PeerAddr())
		}
		n, err := kgate.Start(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		all = append(all, n)
	}
	for _, n := range all {
		if err := n.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func config(name string, k int) kgate.Config {
	return kgate.Config{
		Name:  name,
		Peers: kgate.Peers{Listen: "127.0.0.1:0", Lease: lease},
		Pools: []kgate.Pool{{Name: "p", K: k}},
	}
}

// serve serves a handler behind the node's pool, and returns its address.
func serve(t *testing.T, n *kgate.Node, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(n.Middleware("p")(h))
	s.Config.ConnContext = kgate.ConnContext
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// eventually waits for something that nobody tells about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("never: %s", what)
		}
	}
}

func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}
	return v
}

func acquire(t *testing.T, n *kgate.Node) *kgate.Slot {
	t.Helper()
	s, err := n.Acquire(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dial sends the head of a request.
func dial(t *testing.T, addr, head string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	return conn
}
