package membership

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// An http.Server that refused a request keeps its connection for half a second
// after Close, to let the other end read the answer. A probe of memberlist that has no
// answer yet outlives its Shutdown by the rest of the probe's interval.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		beGateway()
		return
	}
	beganBoot = 0 // the clock that goes on while the machine sleeps knows no virtual time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"))
}

// usualLease is that of gateways for which a test names none.
const usualLease = time.Second

// testTimeout is how long a test waits for what has to happen.
const testTimeout = time.Minute

// network lets the gateways of one test reach each other. A gateway's peer
// address is where its control stream listens; its raft stream listens beside
// it, as the multiplexed peer port will hide.
type network struct {
	// Set before the first gateway starts: the lease of those that are given none, the delay
	// of each direction, whom a gateway misses, and the key of raft's connections.
	lease   time.Duration
	delay   time.Duration
	missing func(*gateway) map[kmutex.Node]time.Time
	key     clusterKey
	// real: they run in real time, over loopback, with a real gossip.
	real bool
	// rumours are the gossip in virtual time.
	rumours rumours
	// forged: gossip has other addresses of all gateways than their own.
	forged atomic.Bool

	mu   sync.Mutex
	raft map[string]string // peer address -> raft address
	// dead boots, and pairs of peer addresses that nothing passes between, both
	// since when.
	dead    map[string]time.Time
	blocked map[pair]time.Time
	conns   map[pair][]net.Conn
	// barred are the pairs of which the first can open no connection to the second;
	// those that are open go on.
	barred map[[2]string]bool
	// narrow are the pairs of which what the first writes to the second in one piece, if it
	// is long, is lost with all that follows on its connection.
	narrow map[[2]string]bool
	// dials are the connections that were opened, questions what was asked on those to control.
	dials     int
	questions atomic.Int64
	// changed wakes each gateway when links may have changed.
	changed []chan struct{}
}

// linksChanged wakes all gateways. The caller holds mu.
func (n *network) linksChanged() {
	for _, c := range n.changed {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// pair of peer addresses, the lesser first.
type pair struct{ a, b string }

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

// layer dials for the gateway at from.
type layer struct {
	net.Listener
	n       *network
	from    string
	resolve func(addr string) string
}

func (l layer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if l.n.isBlocked(l.from, addr) {
		<-ctx.Done() // swallowed
		return nil, ctx.Err()
	}
	if l.n.delay > 0 { // a timer that is over at once is not for the race detector in virtual time: go1.26 crashes
		select {
		case <-time.After(4 * l.n.delay): // the handshakes of TCP and TLS
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	dial := dialWire
	if l.n.real {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	conn, err := dial(ctx, l.resolve(addr))
	if err != nil {
		return nil, err
	}
	if l.n.delay > 0 {
		conn = newSlowConn(conn, l.n.delay)
	}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.dials++
	p := pairOf(l.from, addr)
	if _, blocked := l.n.blocked[p]; blocked {
		_ = conn.Close()
		return nil, os.ErrDeadlineExceeded
	}
	l.n.conns[p] = append(l.n.conns[p], conn)
	return &narrowConn{Conn: conn, n: l.n, from: l.from, to: addr}, nil
}

func (n *network) isBlocked(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, blocked := n.blocked[pairOf(a, b)]
	return blocked || n.barred[[2]string{a, b}]
}

// bar lets a gateway open no new connection to another.
func (n *network) bar(from, to *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.barred[[2]string{from.peerAddr, to.peerAddr}] = true
}

// unblock lets two gateways reach each other again.
func (n *network) unblock(a, b *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.blocked, pairOf(a.peerAddr, b.peerAddr))
	n.linksChanged()
}

// block lets nothing more pass between two gateways but gossip: their links,
// raft's and control's connections.
func (n *network) block(a, b *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := pairOf(a.peerAddr, b.peerAddr)
	n.blocked[p] = time.Now()
	for _, conn := range n.conns[p] {
		_ = conn.Close()
	}
	delete(n.conns, p)
	n.linksChanged()
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.blocked)
	clear(n.barred)
	clear(n.narrow)
	n.linksChanged()
}

func (n *network) raftAddr(peer string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.raft[peer]
}

func (n *network) note(peer, raft string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.raft == nil {
		n.raft, n.dead = map[string]string{}, map[string]time.Time{}
		n.blocked, n.conns = map[pair]time.Time{}, map[pair][]net.Conn{}
		n.barred, n.narrow = map[[2]string]bool{}, map[[2]string]bool{}
	}
	n.raft[peer] = raft
}

// links are those that the gateways would have: they break at once when a
// gateway is killed or cut off.
type links struct {
	g       *gateway
	changed chan struct{}
}

func (n *network) links(g *gateway) links {
	l := links{g, make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = append(n.changed, l.changed)
	return l
}

func (l links) LinksChanged() <-chan struct{} { return l.changed }

func (l links) Down() map[kmutex.Node]time.Time {
	down := make(map[kmutex.Node]time.Time)
	cluster := l.g.cluster.Load()
	if cluster == nil {
		return down
	}
	n := l.g.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range cluster.View().Members {
		dead, isDead := n.dead[m.Boot]
		cut, isCut := n.blocked[pairOf(l.g.peerAddr, m.PeerAddr)]
		switch {
		case m.Name == l.g.name:
		case isDead:
			down[m.Node] = dead
		case isCut:
			down[m.Node] = cut
		}
	}
	return down
}

// gateway is what a test runs of one gateway.
type gateway struct {
	*Cluster
	t     testing.TB
	name  string
	agent agent
	config
	peerAddr string
	gone     bool
	n        *network
	cluster  atomic.Pointer[Cluster]
	owner    sync.WaitGroup
}

// gossip is what a gateway hears.
type gossip struct {
	agent
	n *network
}

func (g gossip) Members() []serfring.Member {
	members := g.agent.Members()
	for i := range members {
		if g.n.forged.Load() {
			members[i].PeerAddr = "127.0.0.1:1"
		}
	}
	return members
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
	lease   time.Duration
	files   journal.FS // nil: the operating system's
	logs    *slog.Logger
	witness bool
	tokens  []string
	stays   bool // it does not come back by itself when its standing is lost
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

func (n *network) listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	if !n.real {
		return listenWire(t, addr)
	}
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
	control, raftListener := n.listen(t, conf.peer), n.listen(t, "")
	if n.delay > 0 {
		control, raftListener = slowListener{control, n.delay}, slowListener{raftListener, n.delay}
	}
	control = askedListener{control, &n.questions}
	peer := control.Addr().String()
	n.note(peer, raftListener.Addr().String())
	boot := newBoot()
	agent := n.gossip(t, serfring.Config{
		Name: name, Boot: boot, PeerAddr: peer, Version: "test", Expect: conf.expect,
		Bind: conf.gossip, Join: conf.join, Keys: keys(conf.key),
		RetryInterval: 100 * time.Millisecond, LeaveDelay: 20 * time.Millisecond,
		Logger: logger(t, name),
	})
	conf.peer, conf.gossip = peer, agent.Addr()
	g := &gateway{t: t, name: name, agent: agent, config: conf, peerAddr: peer, n: n}
	missing := func() map[kmutex.Node]time.Time {
		if g.cluster.Load() == nil || n.missing == nil {
			return nil
		}
		return n.missing(g)
	}
	var err error
	g.Cluster, err = Start(t.Context(), Config{
		Name: name, Boot: boot, PeerAddr: peer, DataDir: conf.dir,
		BootstrapExpect: conf.expect, Joining: conf.joining, Witness: conf.witness,
		Discovery: gossip{agent, n}, Links: n.links(g), Missing: missing,
		Raft:      n.key.secure(t, layer{raftListener, n, peer, n.raftAddr}, name),
		Control:   layer{control, n, peer, func(addr string) string { return addr }},
		swapAfter: 500 * time.Millisecond, Lease: cmp.Or(conf.lease, n.lease, usualLease),
		Logger: cmp.Or(conf.logs, logger(t, name)), files: conf.files,
		AdminTokens: func() []string { return conf.tokens },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.cluster.Store(g.Cluster)
	g.owner.Go(g.own)
	t.Cleanup(g.kill)
	return g
}

// gossip starts a gateway's agent.
func (n *network) gossip(t testing.TB, conf serfring.Config) agent {
	t.Helper()
	if !n.real {
		if conf.Bind == "" {
			conf.Bind = newAddress()
		}
		return n.rumours.start(conf)
	}
	if conf.Bind == "" {
		conf.Bind = "127.0.0.1:0"
	}
	a, err := serfring.Start(conf)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// own is what the gateway's owner does, who never has anything in flight.
func (g *gateway) own() {
	for {
		changed := g.Changed()
		if !g.stays && !g.Standing().Valid(time.Now()) {
			g.Rejoin()
		}
		select {
		case <-changed:
		case <-g.closing.Done():
			return
		}
	}
}

// stands waits for a standing and returns it.
func (g *gateway) stands() Standing {
	g.t.Helper()
	until(g.t, g.name+" stands", func() bool { return g.Standing().Valid(time.Now()) })
	return g.Standing()
}

// kill ends the gateway without a word to the others.
func (g *gateway) kill() {
	if g.gone {
		return
	}
	g.gone = true
	boot, _ := g.incarnation.current()
	g.n.mu.Lock()
	g.n.dead[boot] = time.Now()
	g.n.linksChanged()
	g.n.mu.Unlock()
	defer g.owner.Wait()
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
	defer g.owner.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
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
	ctx, cancel := context.WithTimeout(g.t.Context(), testTimeout)
	defer cancel()
	if err := g.Ready(ctx); err != nil {
		g.t.Fatalf("%s: not ready: %v; %+v", g.name, err, g.stats())
	}
}

// until waits for something that no channel tells of.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
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
	return n.leased(t, 0, dirs)
}

// leased is three, with a lease.
func (n *network) leased(t testing.TB, lease time.Duration, dirs func(name string) string) []*gateway {
	t.Helper()
	if dirs == nil {
		dirs = func(string) string { return "" }
	}
	a := n.start(t, "a", config{expect: 3, lease: lease, dir: dirs("a")})
	b := n.start(t, "b", config{expect: 3, lease: lease, dir: dirs("b"), join: []string{a.gossip}})
	c := n.start(t, "c", config{expect: 3, lease: lease, dir: dirs("c"), join: []string{a.gossip}})
	return []*gateway{a, b, c}
}

func leaderOf(t testing.TB, gateways []*gateway) *gateway {
	t.Helper()
	var leader *gateway
	until(t, "a leader", func() bool {
		for _, g := range gateways {
			if !g.gone && g.stats().Role == "leader" {
				leader = g
				return true
			}
		}
		return false
	})
	return leader
}

// keys returns the gossip keys of a configuration that has one, or none.
func keys(key []byte) [][]byte {
	if key == nil {
		return nil
	}
	return [][]byte{key}
}

// stats are what the tests look at of the agreement.
type stats struct {
	Cluster, Server, Role, Leader, Problem string
	Term                                   uint64
	Voters, NonVoters                      []string
}

func (g *gateway) stats() stats {
	s := stats{Cluster: g.storage.clusterID(), Server: g.storage.meta.Server, Role: strings.ToLower(g.raft.State().String()), Term: g.raft.CurrentTerm()}
	s.Leader, _ = g.Leader()
	for _, server := range g.servers() {
		if server.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, string(server.ID))
		} else {
			s.NonVoters = append(s.NonVoters, string(server.ID))
		}
	}
	if err := g.Problem(); err != nil {
		s.Problem = err.Error()
	}
	return s
}

func join(name, boot string) views.Command {
	return views.Command{Join: &views.Join{Name: name, Boot: boot, PeerAddr: name + ":7080", Server: name + "/" + boot}}
}

func pool(name string, k int) views.Command {
	return views.Command{Define: &views.Define{Name: name, K: k, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}}
}

func setK(name string, k int) views.Command {
	return views.Command{SetK: &views.SetK{Name: name, K: k}}
}

func suspend(nodes ...kmutex.Node) views.Command {
	return views.Command{Suspend: &views.Suspend{Nodes: nodes}}
}

func expire(nodes ...kmutex.Node) views.Command {
	return views.Command{Expire: &views.Expire{Nodes: nodes}}
}
