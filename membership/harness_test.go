package membership

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/chordring/serfring"
)

// An http.Server that refused a request keeps its connection for half a second
// after Close, to let the other end read the answer.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// network lets the gateways of one test reach each other. A gateway's peer
// address is where its control stream listens; its raft stream listens beside
// it, as the multiplexed peer port will hide.
type network struct {
	mu   sync.Mutex
	raft map[string]string // peer address -> raft address
}

type layer struct {
	net.Listener
	resolve func(addr string) string
}

func (l layer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", l.resolve(addr))
}

func (n *network) raftAddr(peer string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.raft[peer]
}

// gateway is what a test runs of one gateway.
type gateway struct {
	*Cluster
	t     testing.TB
	name  string
	agent *serfring.Agent
	config
	peerAddr string
	gone     bool
}

// config of a gateway in a test.
type config struct {
	expect  int
	joining bool
	dir     string
	join    []string
	peer    string // address to listen on, to return to the same one
	gossip  string
	key     []byte
}

var boots struct {
	sync.Mutex
	n int
}

func newBoot() string {
	boots.Lock()
	defer boots.Unlock()
	boots.n++
	return fmt.Sprintf("boot%d", boots.n)
}

func logger(t testing.TB, name string) *slog.Logger {
	if os.Getenv("KGATE_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With(slog.String("gateway", name))
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (n *network) start(t testing.TB, name string, conf config) *gateway {
	t.Helper()
	control, raftListener := listen(t, conf.peer), listen(t, "")
	peer := control.Addr().String()
	n.mu.Lock()
	if n.raft == nil {
		n.raft = map[string]string{}
	}
	n.raft[peer] = raftListener.Addr().String()
	n.mu.Unlock()
	if conf.gossip == "" {
		conf.gossip = "127.0.0.1:0"
	}
	boot := newBoot()
	agent, err := serfring.Start(serfring.Config{
		Name: name, Boot: boot, PeerAddr: peer, Version: "test", Expect: conf.expect,
		Bind: conf.gossip, Join: conf.join, Key: conf.key,
		RetryInterval: 100 * time.Millisecond, LeaveDelay: 20 * time.Millisecond,
		Logger: logger(t, name),
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := Start(t.Context(), Config{
		Name: name, Boot: boot, PeerAddr: peer, DataDir: conf.dir,
		BootstrapExpect: conf.expect, Joining: conf.joining,
		Discovery: agent,
		Raft:      layer{raftListener, n.raftAddr},
		Control:   layer{control, func(addr string) string { return addr }},
		SwapAfter: 500 * time.Millisecond,
		Logger:    logger(t, name),
	})
	if err != nil {
		t.Fatal(err)
	}
	conf.peer, conf.gossip = peer, agent.Addr()
	g := &gateway{Cluster: cluster, t: t, name: name, agent: agent, config: conf, peerAddr: peer}
	t.Cleanup(g.kill)
	return g
}

// kill ends the gateway without a word to the others.
func (g *gateway) kill() {
	if g.gone {
		return
	}
	g.gone = true
	if err := g.Close(); err != nil {
		g.t.Errorf("%s: close: %v", g.name, err)
	}
	if err := g.agent.Close(); err != nil {
		g.t.Errorf("%s: close agent: %v", g.name, err)
	}
}

// leave ends it gracefully.
func (g *gateway) leave() {
	g.t.Helper()
	g.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Leave(ctx); err != nil {
		g.t.Errorf("%s: leave: %v", g.name, err)
	}
	if err := g.agent.Leave(); err != nil {
		g.t.Errorf("%s: leave gossip: %v", g.name, err)
	}
	if err := g.agent.Close(); err != nil {
		g.t.Errorf("%s: close agent: %v", g.name, err)
	}
}

func (g *gateway) ready() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 15*time.Second)
	defer cancel()
	if err := g.Ready(ctx); err != nil {
		g.t.Fatalf("%s: not ready: %v; %+v", g.name, err, g.Stats())
	}
}

// until waits for something that no channel tells of.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// names of the members of g's view, in order of node.
func (g *gateway) names() []string {
	var names []string
	for _, m := range g.View().Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

func agree(t testing.TB, gateways []*gateway, names ...string) {
	t.Helper()
	slices.Sort(names)
	until(t, fmt.Sprintf("one view of %v", names), func() bool {
		for _, g := range gateways {
			if !slices.Equal(g.names(), names) || g.View().Number != gateways[0].View().Number {
				return false
			}
		}
		return true
	})
	want := fmt.Sprint(gateways[0].View().Members, gateways[0].View().Pools)
	for _, g := range gateways {
		if got := fmt.Sprint(g.View().Members, g.View().Pools); got != want {
			t.Errorf("view %d differs: %s has %s, %s has %s", g.View().Number, g.name, got, gateways[0].name, want)
		}
	}
}

// three starts gateways a, b and c that expect each other.
func (n *network) three(t testing.TB, dirs func(name string) string) []*gateway {
	t.Helper()
	if dirs == nil {
		dirs = func(string) string { return "" }
	}
	a := n.start(t, "a", config{expect: 3, dir: dirs("a")})
	b := n.start(t, "b", config{expect: 3, dir: dirs("b"), join: []string{a.gossip}})
	c := n.start(t, "c", config{expect: 3, dir: dirs("c"), join: []string{a.gossip}})
	return []*gateway{a, b, c}
}

func leaderOf(t testing.TB, gateways []*gateway) *gateway {
	t.Helper()
	var leader *gateway
	until(t, "a leader", func() bool {
		for _, g := range gateways {
			if !g.gone && g.Stats().Role == "leader" {
				leader = g
				return true
			}
		}
		return false
	})
	return leader
}
