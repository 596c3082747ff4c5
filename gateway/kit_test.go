package gateway

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership"
	"github.com/kgate/kgate/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a few gateways over a network in memory, with virtual time when it
// runs in a synctest bubble.
type fleet struct {
	t     *testing.T
	delay time.Duration

	mu       sync.Mutex
	view     *membership.View
	gateways map[kmutex.Node]*node
}

// node is one gateway of a fleet: its views, links and exchange.
type node struct {
	*Gateway
	fleet *fleet
	self  kmutex.Node
	inbox chan delivery
	calls chan net.Conn
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
}

type delivery struct {
	from kmutex.Node
	pool string
	m    kmutex.Message
	at   time.Time
}

const testPool = "downloads"

// newFleet starts n gateways with one agreed pool.
func newFleet(t *testing.T, n, k int, binding string, delay time.Duration, cfg PoolConfig) *fleet {
	t.Helper()
	f := &fleet{t: t, delay: delay, gateways: make(map[kmutex.Node]*node)}
	f.view = &membership.View{Number: 1, Pools: []membership.Pool{
		{Name: testPool, K: k, Binding: binding, Epoch: 1, Began: uint64(n), Home: 1},
	}}
	for i := range n {
		f.join(kmutex.Node(i+1), cfg)
	}
	f.follow()
	t.Cleanup(f.close)
	return f
}

func (f *fleet) join(self kmutex.Node, cfg PoolConfig) *node {
	f.t.Helper()
	n := &node{fleet: f, self: self, inbox: make(chan delivery, 1<<16), calls: make(chan net.Conn), done: make(chan struct{})}
	g, err := New(Config{Links: n, Exchange: n, Views: n, Pools: map[string]PoolConfig{testPool: cfg}})
	if err != nil {
		f.t.Fatal(err)
	}
	n.Gateway = g
	n.wg.Go(n.receive)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view = &membership.View{
		Number: f.view.Number + 1, Pools: f.view.Pools,
		Members: append(slices.Clone(f.view.Members), membership.Member{
			Node: self, Name: fmt.Sprintf("gw-%d", self), PeerAddr: fmt.Sprintf("gw-%d:1", self), Status: membership.StatusAlive,
		}),
	}
	f.gateways[self] = n
	return n
}

// leave takes a gateway out of the view: a new epoch without it.
func (f *fleet) leave(self, home kmutex.Node) {
	f.takeOut(self, home)
	f.follow()
}

// takeOut is leave, with nobody told yet.
func (f *fleet) takeOut(self, home kmutex.Node) {
	f.mu.Lock()
	pool := f.view.Pools[0]
	pool.Epoch++
	pool.Began = 1000 * pool.Epoch
	pool.Home = home
	f.view = &membership.View{
		Number: f.view.Number + 1, Pools: []membership.Pool{pool},
		Members: slices.DeleteFunc(slices.Clone(f.view.Members), func(m membership.Member) bool { return m.Node == self }),
	}
	f.mu.Unlock()
}

// follow shows every gateway the newest view.
func (f *fleet) follow() {
	for _, n := range f.all() {
		n.Follow()
	}
}

func (f *fleet) all() []*node {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*node
	for _, n := range f.gateways {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *node) int { return int(a.self) - int(b.self) })
	return all
}

func (f *fleet) close() {
	for _, n := range f.all() {
		if err := n.Gateway.Close(); err != nil {
			f.t.Error(err)
		}
		_ = n.Close()
		n.wg.Wait()
	}
}

// check holds the pool against the invariants, once nothing moves any more.
func (f *fleet) check() {
	f.t.Helper()
	synctest.Wait()
	time.Sleep(time.Second) // virtual: ask intervals end
	synctest.Wait()
	w := kmutex.World{K: f.view.Pools[0].K, Early: f.view.Pools[0].Binding == membership.BindingEarly}
	for _, n := range f.all() {
		if _, in := n.Self(); in {
			p := n.pool(testPool)
			p.mu.Lock()
			w.Nodes = append(w.Nodes, p.machine.State())
			p.mu.Unlock()
		}
	}
	if err := w.Check(); err != nil {
		f.t.Error(err)
	}
	for _, s := range w.Nodes {
		if len(s.Running) > 0 || len(s.Turns) > 0 || len(s.Pending) > 0 {
			f.t.Errorf("node %d is not at rest: %d running, %d turns, %d pending", s.Self, len(s.Running), len(s.Turns), len(s.Pending))
		}
	}
}

// View implements Views.
func (n *node) View() *membership.View {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	return n.fleet.view
}

// Self implements Views.
func (n *node) Self() (kmutex.Node, bool) {
	_, in := n.View().Member(n.self)
	return n.self, in
}

// SetPeers implements Links.
func (*node) SetPeers(kmutex.Node, []transport.Peer) {}

// MeanRTT implements Links.
func (n *node) MeanRTT() time.Duration { return 2 * n.fleet.delay }

// Send implements Links.
func (n *node) Send(to kmutex.Node, pool string, m kmutex.Message) error {
	n.fleet.mu.Lock()
	peer := n.fleet.gateways[to]
	n.fleet.mu.Unlock()
	select {
	case peer.inbox <- delivery{n.self, pool, m, time.Now().Add(n.fleet.delay)}:
		return nil
	case <-peer.done:
		return transport.ErrUnknownPeer
	}
}

func (n *node) receive() {
	for {
		select {
		case d := <-n.inbox:
			time.Sleep(time.Until(d.at))
			if err := n.Deliver(d.from, d.pool, d.m); err != nil {
				n.fleet.t.Errorf("node %d: %v", n.self, err)
			}
		case <-n.done:
			return
		}
	}
}

// Accept implements net.Listener.
func (n *node) Accept() (net.Conn, error) {
	select {
	case c := <-n.calls:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (n *node) Addr() net.Addr { return &net.TCPAddr{} }

// Close implements net.Listener.
func (n *node) Close() error {
	n.once.Do(func() { close(n.done) })
	return nil
}

// Dial implements Exchange.
func (n *node) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var to kmutex.Node
	if _, err := fmt.Sscanf(addr, "gw-%d:1", &to); err != nil {
		return nil, err
	}
	n.fleet.mu.Lock()
	peer := n.fleet.gateways[to]
	n.fleet.mu.Unlock()
	here, there := net.Pipe()
	select {
	case peer.calls <- there:
		return here, nil
	case <-peer.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
