package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/views"
)

func TestWrongGossipKeyStaysOut(t *testing.T) {
	n := network{real: true, lease: 10 * time.Second}
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, serfring.KeySize) }
	a := n.start(t, "a", config{expect: 1, key: key(1)})
	a.ready()
	b := n.start(t, "b", config{expect: 1, joining: true, join: []string{a.gossip}, key: key(2)})
	until(t, "it is told", func() bool { return errors.Is(b.agent.Problem(), serfring.ErrKey) })
	if _, in := b.Self(); in || len(a.names()) != 1 {
		t.Errorf("it is in: %v", a.names())
	}
	until(t, "it says what it waits for", func() bool { return strings.Contains(b.stats().Problem, "waiting to be let in") })
}

// A second gateway of a name stays out, whether it asks the one or another.
func TestDuplicateNameStaysOut(t *testing.T) {
	n := network{real: true, lease: 10 * time.Second}
	a := n.start(t, "a", config{expect: 1})
	b := n.start(t, "b", config{expect: 1, joining: true, join: []string{a.gossip}})
	b.ready()
	agree(t, []*gateway{a, b}, "a", "b")
	before := a.View()
	twin := n.start(t, "b", config{expect: 1, joining: true, join: []string{a.gossip, b.gossip}})
	until(t, "it is told", func() bool { return errors.Is(twin.agent.Problem(), serfring.ErrName) })
	if _, in := twin.Self(); in || a.View().Number != before.Number {
		t.Errorf("it is in: %+v", a.View().Members)
	}
}

func TestExpectationsDiffer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		a := n.start(t, "a", config{expect: 2})
		b := n.start(t, "b", config{expect: 3, join: []string{a.gossip}})
		for _, g := range []*gateway{a, b} {
			until(t, g.name+" waits", func() bool {
				return strings.Contains(g.stats().Problem, fmt.Sprintf("waiting for %d gateways to start a cluster, 1 are there", g.expect))
			})
		}
		c := n.start(t, "c", config{expect: 2, join: []string{a.gossip}})
		// Two that agree are enough; the third is let in.
		for _, g := range []*gateway{a, b, c} {
			g.ready()
		}
		agree(t, []*gateway{a, b, c}, "a", "b", "c")
	})
}

// Two clusters that come to gossip with each other stay two.
func TestTwoClustersStayApart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		a := n.start(t, "a", config{expect: 1})
		a.ready()
		b := n.start(t, "b", config{expect: 1, join: []string{a.gossip}}) // expects to be alone, yet joins
		b.ready()
		until(t, "they see each other", func() bool { return len(alive(a.agent.Members())) == 2 && len(alive(b.agent.Members())) == 2 })
		define(t, a, "p", 1)
		define(t, b, "p", 2)
		if len(a.names()) != 1 || len(b.names()) != 1 || a.View().Cluster == b.View().Cluster {
			t.Errorf("%+v and %+v", a.View().Members, b.View().Members)
		}
	})
}

// A gateway whose data directory is another cluster's says so.
func TestForeignDataDir(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		dirs := map[string]string{"x": t.TempDir(), "y": t.TempDir()}
		old := []*gateway{n.start(t, "x", config{expect: 2, dir: dirs["x"]})}
		old = append(old, n.start(t, "y", config{expect: 2, dir: dirs["y"], join: []string{old[0].gossip}}))
		for _, g := range old {
			g.ready()
		}
		for _, g := range old {
			g.kill()
		}
		a := n.start(t, "a", config{expect: 1})
		a.ready()
		// y has no vote in its old cluster, so it has no leader.
		y := n.start(t, "y", config{expect: 1, joining: true, dir: dirs["y"], join: []string{a.gossip}})
		until(t, "it says so", func() bool { return strings.Contains(y.stats().Problem, "move its data_dir away") })
		if len(a.names()) != 1 {
			t.Errorf("it is in: %v", a.names())
		}
	})
}

// Without a majority nothing is agreed, a proposal ends with its context, and
// the reason can be read.
func TestMajorityLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		for _, g := range gateways {
			g.ready()
		}
		gateways[0].kill()
		gateways[1].kill()
		c := gateways[2]
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		until(t, "no leader", func() bool { _, ok := c.Leader(); return !ok })
		if err := c.DefinePool(ctx, Pool{Name: "p", K: 1, Binding: admission.BindingLate}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		until(t, "it says why", func() bool { return strings.Contains(c.stats().Problem, "no leader: 1 of 3 voters are seen") })
	})
}

func TestSetKAndSuspend(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		gateways := n.three(t, nil)
		define(t, gateways[0], "p", 3)
		agree(t, gateways, "a", "b", "c")
		follower := gateways[0]
		if follower == leaderOf(t, gateways) {
			follower = gateways[1]
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := follower.SetK(ctx, "p", 7, 0, 0); err != nil {
			t.Fatal(err)
		}
		if p := poolOf(t, follower, "p"); p.K != 7 || p.Epoch != 2 {
			t.Errorf("%+v", p)
		}
		if err := follower.SetK(ctx, "unknown", 7, 0, 0); !errors.Is(err, ErrCommand) {
			t.Errorf("%v", err)
		}
		// One that is taken out while it lives comes back as another node.
		node, _ := follower.Self()
		if err := follower.Suspend(ctx, follower.name); err != nil {
			t.Fatal(err)
		}
		until(t, "it is back", func() bool { now, ok := follower.Self(); return ok && now > node })
		agree(t, gateways, "a", "b", "c")
	})
}

func TestCloseEndsWaiters(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 2})
		done := make(chan error, 2)
		go func() { done <- g.Ready(context.Background()) }()
		go func() {
			done <- g.DefinePool(context.Background(), Pool{Name: "p", K: 1, Binding: admission.BindingLate})
		}()
		g.kill()
		for range 2 {
			if err := <-done; !errors.Is(err, errClosed) {
				t.Errorf("%v", err)
			}
		}
		if err := g.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// What reaches the control stream from outside is refused, and changes
// nothing.
func TestControlRefusesGarbage(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var n network
		g := n.start(t, "a", config{expect: 1})
		g.ready()
		before := g.View().Number
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return dialWire(ctx, addr) },
		}}
		post := func(body string) int {
			t.Helper()
			response, err := client.Post("http://"+g.peerAddr+pathCommands, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			drop(response.Body)
			return response.StatusCode
		}
		evil, err := views.Encode(join("evil", "x"))
		if err != nil {
			t.Fatal(err)
		}
		for body, want := range map[string]int{
			"":                                      http.StatusUnprocessableEntity,
			"garbage":                               http.StatusUnprocessableEntity,
			string(evil):                            http.StatusUnprocessableEntity,
			`{"v":3,"found":{"cluster":"evil"}}`:    http.StatusUnprocessableEntity,
			`{"v":9,"lease":{}}`:                    http.StatusUnprocessableEntity,
			`{"v":3,"remove":{"node":99}}`:          http.StatusOK, // nobody: nothing to do
			strings.Repeat("x", 2*views.MaxCommand): http.StatusBadRequest,
		} {
			if got := post(body); got != want {
				t.Errorf("%.40q: status %d, want %d", body, got, want)
			}
		}
		for _, raw := range []string{"\x16\x03\x01 not http", "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"} {
			conn, err := dialWire(t.Context(), g.peerAddr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, raw+"\r\n\r\n")
			answer, _ := io.ReadAll(conn)
			if !bytes.Contains(answer, []byte(" 40")) {
				t.Errorf("%q is answered with %q", raw, answer)
			}
			_ = conn.Close()
		}
		if g.View().Number != before {
			t.Errorf("view %d, before %d", g.View().Number, before)
		}
		define(t, g, "still", 1)
	})
}

// forgotten is a command that raft says nothing of.
type forgotten chan error

func (f forgotten) Error() error { return <-f }

// TestCloseWaitsForNoCommand: a command that raft has forgotten does not keep a gateway from
// closing.
func TestCloseWaitsForNoCommand(t *testing.T) {
	n := new(raftNode)
	n.closing, n.cancel = context.WithCancel(t.Context())
	f := make(forgotten)
	defer close(f)
	time.AfterFunc(10*time.Millisecond, n.cancel)
	if err := n.committed(f); !errors.Is(err, raft.ErrRaftShutdown) {
		t.Error(err)
	}
}
