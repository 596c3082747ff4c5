package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// Gateways of these tests run in virtual time: as they ship, but for their connections, which are in
// memory, and with a gossip that says what is so. So their times are exact, however busy the machine.

// A probe of memberlist that has no answer yet outlives its Shutdown by the rest of the probe's
// interval.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		beGateway()
		return
	}
	beganBoot = 0 // the clock that goes on while the machine sleeps knows no virtual time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"))
}

// virtual runs a test in virtual time, beside others.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// usualLease is that of gateways for which a test names none.
const usualLease = time.Second

// testTimeout is how long a test waits for what has to happen.
const testTimeout = time.Minute

// network lets the gateways of one test reach each other.
type network struct {
	// Set before the first gateway starts: the lease of those that are given none, the delay of each
	// direction, their log, and whom a gateway misses.
	lease   time.Duration
	delay   time.Duration
	logs    *slog.Logger
	missing func(*gateway) map[kmutex.Node]time.Time
	rumours rumours

	mu    sync.Mutex
	at    map[string]*gateway // that listen, by address
	ports int
	// blocked are the pairs of addresses that nothing passes between, barred those of which the first
	// can open no connection to the second, and narrow those from whose first to whose second no long packets pass.
	blocked, barred, narrow map[[2]string]bool
	cables                  map[*cable]bool
	dials                   int
}

// cable is a connection.
type cable struct {
	ends   [2]*gateway
	queues [2]chan parcel // to the ends
	cut    chan struct{}
	stuck  [2]bool // to the ends: a long packet is lost, and is sent again and again
}

type parcel struct {
	at   time.Time
	data []byte
}

func pairOf(a, b *gateway) [2]string {
	return [2]string{min(a.peerAddr, b.peerAddr), max(a.peerAddr, b.peerAddr)}
}

// between returns the connection of two gateways. The caller holds mu, as of all below.
func (n *network) between(a, b *gateway) *cable {
	for c := range n.cables {
		if c.ends == [2]*gateway{a, b} || c.ends == [2]*gateway{b, a} {
			return c
		}
	}
	return nil
}

func (n *network) connect(a, b *gateway) {
	c := &cable{ends: [2]*gateway{a, b}, queues: [2]chan parcel{make(chan parcel, 1<<12), make(chan parcel, 1<<12)}, cut: make(chan struct{})}
	n.cables[c] = true
	n.dials++
	for i, to := range c.ends {
		from := c.ends[1-i]
		to.carrier.Changed(transport.Change{Name: from.name, Up: true})
		go n.pump(c, c.queues[i], from, to)
	}
	n.prove(c)
}

// prove shows the ends of a connection that long packets pass, if they do.
func (n *network) prove(c *cable) {
	time.AfterFunc(2*n.delay+time.Microsecond, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		a, b := c.ends[0], c.ends[1]
		if n.cables[c] && !n.isNarrow(a, b) && !n.isNarrow(b, a) {
			a.carrier.Changed(transport.Change{Name: b.name, Up: true, Proved: true})
			b.carrier.Changed(transport.Change{Name: a.name, Up: true, Proved: true})
		}
	})
}

// pump delivers what is under way in a direction.
func (n *network) pump(c *cable, queue chan parcel, from, to *gateway) {
	for {
		select {
		case <-c.cut:
			return
		case p := <-queue:
			if wait := time.Until(p.at); wait > 0 {
				select {
				case <-time.After(wait):
				case <-c.cut:
					return
				}
			}
			to.carrier.take(from.name, 2*n.delay, p.data)
		}
	}
}

func (n *network) disconnect(c *cable) {
	if !n.cables[c] {
		return
	}
	delete(n.cables, c)
	close(c.cut)
	for i, to := range c.ends {
		to.carrier.Changed(transport.Change{Name: c.ends[1-i].name, Err: errors.New("cut")})
	}
}

// block lets nothing more pass between two gateways but gossip.
func (n *network) block(a, b *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked[pairOf(a, b)] = true
	if c := n.between(a, b); c != nil {
		n.disconnect(c)
	}
}

// unblock lets two gateways reach each other again.
func (n *network) unblock(a, b *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.blocked, pairOf(a, b))
}

// bar lets a gateway open no new connection to another. One that is open goes on.
func (n *network) bar(from, to *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.barred[[2]string{from.peerAddr, to.peerAddr}] = true
}

// long is from how many bytes on a datagram gets lost on a narrow path.
const long = 300

// narrows loses what is long from one gateway to others.
func (n *network) narrows(from *gateway, to []*gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range to {
		n.narrow[[2]string{from.peerAddr, g.peerAddr}] = true
	}
}

// isNarrow reports that long packets get lost from one gateway to another. The caller holds mu.
func (n *network) isNarrow(from, to *gateway) bool {
	return n.narrow[[2]string{from.peerAddr, to.peerAddr}]
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.blocked)
	clear(n.barred)
	clear(n.narrow)
	for c := range n.cables {
		n.prove(c)
	}
}

// wires are a gateway's connections.
type wires struct{ g *gateway }

var _ Links = wires{}

func (w wires) SendDatagram(to transport.To, _ wire.Channel, data []byte) error {
	n := w.g.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.cables {
		for i, end := range c.ends {
			if end.name == to.Name && c.ends[1-i] == w.g {
				if n.loses(c, i, len(data)) {
					return nil
				}
				c.queues[i] <- parcel{time.Now().Add(n.delay), slices.Clone(data)}
				return nil
			}
		}
	}
	return transport.ErrLinkDown
}

// loses reports that a datagram to an end is lost, as is all that follows it, until the connection is given
// up. The caller holds mu.
func (n *network) loses(c *cable, end, size int) bool {
	if !c.stuck[end] && size >= long && n.isNarrow(c.ends[1-end], c.ends[end]) {
		c.stuck[end] = true
		time.AfterFunc(usualLease/2, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.disconnect(c)
		})
	}
	return c.stuck[end]
}

func (w wires) Reach(ctx context.Context, to transport.To, first time.Duration) error {
	n := w.g.n
	blocked, refused := n.state(w.g, to.Addr)
	took := 6 * n.delay // the handshakes of TCP and TLS, and the hellos
	switch {
	case blocked || 2*n.delay > first:
		took = first
	case refused:
		took = 2 * n.delay
	}
	if took > 0 { // a timer that is over at once is not for the race detector in virtual time: go1.26 crashes
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if blocked || 2*n.delay > first {
		return os.ErrDeadlineExceeded
	}
	if blocked, refused = n.state(w.g, to.Addr); blocked || refused {
		return syscall.ECONNREFUSED
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	other := n.at[to.Addr]
	if other == nil || other.name != to.Name || w.g.gone {
		return fmt.Errorf("%s is not %s", to.Addr, to.Name)
	}
	if n.between(w.g, other) == nil {
		n.connect(w.g, other)
	}
	return nil
}

func (n *network) state(from *gateway, addr string) (blocked, refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pair := [2]string{min(from.peerAddr, addr), max(from.peerAddr, addr)}
	return n.blocked[pair] || n.barred[[2]string{from.peerAddr, addr}], n.at[addr] == nil
}

func (w wires) Meet(ctx context.Context, addr string) (transport.To, error) {
	n := w.g.n
	n.mu.Lock()
	other := n.at[addr]
	n.mu.Unlock()
	if blocked, refused := n.state(w.g, addr); blocked {
		<-ctx.Done()
		return transport.To{}, ctx.Err()
	} else if refused {
		return transport.To{}, syscall.ECONNREFUSED
	}
	return transport.To{Name: other.name, Addr: addr}, nil
}

func (w wires) Keep(transport.To) (release func()) { return func() {} }
func (w wires) Proved(string) (string, bool)       { return "", true }

// gateway is what a test runs of one gateway.
type gateway struct {
	*Cluster
	t     testing.TB
	name  string
	agent *rumourAgent
	config
	peerAddr string
	gone     bool // guarded by n.mu
	n        *network
	cluster  atomic.Pointer[Cluster]
	carrier  *Carrier
	owner    sync.WaitGroup
}

// config of a gateway in a test.
type config struct {
	expect  int
	joining bool
	dir     string
	join    []string
	peer    string // address to listen on, to return to the same one
	gossip  string
	lease   time.Duration
	files   journal.FS // nil: the operating system's
	logs    *slog.Logger
	witness bool
	tokens  []string
	stays   bool // it does not come back by itself when its standing is lost
}

var boots atomic.Int64

func logger(t testing.TB, name string) *slog.Logger {
	if os.Getenv("KGATE_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With(slog.String("gateway", name))
}

func (n *network) start(t testing.TB, name string, conf config) *gateway {
	t.Helper()
	g := &gateway{t: t, name: name, n: n, carrier: NewCarrier()}
	n.mu.Lock()
	if n.at == nil {
		n.at, n.cables = make(map[string]*gateway), make(map[*cable]bool)
		n.blocked, n.barred, n.narrow = make(map[[2]string]bool), make(map[[2]string]bool), make(map[[2]string]bool)
	}
	if g.peerAddr = conf.peer; conf.peer == "" {
		n.ports++
		g.peerAddr = fmt.Sprintf("10.0.0.%d:7080", n.ports)
	}
	n.at[g.peerAddr] = g
	n.mu.Unlock()
	boot := fmt.Sprintf("boot%d", boots.Add(1))
	g.agent = n.rumours.start(g.peerAddr, serfring.Config{Name: name, Boot: boot, Expect: conf.expect, Join: conf.join})
	conf.peer, conf.gossip = g.peerAddr, g.peerAddr
	g.config = conf
	missing := func() map[kmutex.Node]time.Time {
		if g.cluster.Load() == nil || n.missing == nil {
			return nil
		}
		return n.missing(g)
	}
	var err error
	g.Cluster, err = Start(t.Context(), Config{
		Name: name, Boot: boot, PeerAddr: g.peerAddr, DataDir: conf.dir,
		BootstrapExpect: conf.expect, Joining: conf.joining, Witness: conf.witness,
		Discovery: g.agent, Links: wires{g}, Carrier: g.carrier, Missing: missing,
		swapAfter: 500 * time.Millisecond, Lease: cmp.Or(conf.lease, n.lease, usualLease),
		Logger: cmp.Or(conf.logs, n.logs, logger(t, name)), files: conf.files,
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

// unplug ends the gateway's connections, as its process does when it ends.
func (g *gateway) unplug() {
	g.n.mu.Lock()
	defer g.n.mu.Unlock()
	g.gone = true
	if g.n.at[g.peerAddr] == g {
		delete(g.n.at, g.peerAddr)
	}
	for c := range g.n.cables {
		if c.ends[0] == g || c.ends[1] == g {
			g.n.disconnect(c)
		}
	}
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
	g.unplug()
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
	defer g.owner.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := g.Leave(ctx); err != nil {
		g.t.Errorf("%s: leave: %v", g.name, err)
	}
	g.unplug()
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

// stats are what the tests look at of the agreement.
type stats struct {
	Cluster, Server, Role, Problem string
	Term                           uint64
	Voters                         []string
}

func (g *gateway) stats() stats {
	s := stats{Cluster: g.View().Cluster, Server: fmt.Sprint(g.id)}
	if err := g.Problem(); err != nil {
		s.Problem = err.Error()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Term = g.core.Term()
	if g.core.Leads() {
		s.Role = "leader"
	}
	for _, id := range g.core.Voters() {
		s.Voters = append(s.Voters, fmt.Sprint(id))
	}
	return s
}

func (g *gateway) voters() []string { return g.stats().Voters }

func alive(members []serfring.Member) []serfring.Member {
	return slices.DeleteFunc(members, func(m serfring.Member) bool { return m.Status != serfring.StatusAlive })
}
