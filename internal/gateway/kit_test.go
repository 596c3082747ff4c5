package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/kmutex/invariants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a few gateways over a network in memory, with virtual time. It runs
// in a synctest bubble.
type fleet struct {
	t     *testing.T
	delay time.Duration
	cfg   PoolConfig

	mu       sync.Mutex
	index    uint64 // of the log of views
	view     *membership.View
	gateways map[kmutex.Node]*node // by present incarnation
	drop     func(kmutex.Message) bool
	heirs    bool // lost gateways have the heirs that the ring says, as tickets need it
}

// node is one gateway of a fleet: its views and links.
type node struct {
	*Gateway
	fleet *fleet
	inbox chan delivery
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
	pause atomic.Int64 // how long SetPeers takes, in nanoseconds

	// Under the fleet's lock.
	name    string           // of all incarnations
	self    kmutex.Node      // present incarnation
	seen    *membership.View // newest view that has reached it
	until   time.Time        // end of its lease
	changed chan struct{}
	cut     bool      // nothing goes in or out
	asks    int       // for places in line
	alone   int       // of them, by SendNow
	asked   int       // calls of other gateways
	stalled time.Time // until then it takes in no call
}

// lossFunc is a Holder.
type lossFunc func()

func (f lossFunc) LoseSlot() { f() }

// Acquire returns the slot as this package has it.
func (n *node) Acquire(ctx context.Context, req admission.Request) (*Slot, error) {
	s := new(Slot)
	if err := n.AcquireInto(ctx, s, &req); err != nil {
		return nil, err
	}
	return s, nil
}

// redeem is RedeemTicket in the tests' pool, and returns the slot as this package has it. Lost is
// called when it is lost; nil: nothing is.
func (n *node) redeem(ctx context.Context, pool, id string, lost lossFunc) (*Redeemed, error) {
	var holder admission.Holder
	if lost != nil {
		holder = lost
	}
	s, err := n.RedeemTicket(ctx, pool, id, holder)
	r, _ := s.(*Redeemed)
	return r, err
}

type delivery struct {
	from, to kmutex.Node
	pool     string
	m        kmutex.Message
	at       time.Time
}

const (
	testPool = "downloads"
	// always is a lease that no test outlives.
	always = 1000 * time.Hour
)

// newFleet starts n gateways with one agreed pool, which has begun at all.
func newFleet(t *testing.T, n, k int, binding admission.Binding, delay time.Duration, cfg PoolConfig) *fleet {
	t.Helper()
	cfg.TicketTTL = cmp.Or(cfg.TicketTTL, admission.MaxTTL)
	f := &fleet{t: t, delay: delay, cfg: cfg, gateways: make(map[kmutex.Node]*node)}
	f.view = &membership.View{Number: 1, Pools: []membership.Pool{
		{Name: testPool, K: k, Binding: binding, Epoch: 1, Began: uint64(n), Home: 1},
	}}
	for range n {
		f.join()
	}
	f.follow()
	t.Cleanup(f.close)
	for _, g := range f.all() {
		for !g.Status(testPool).Begun {
			time.Sleep(delay + time.Millisecond)
		}
	}
	return f
}

// join starts a gateway and adds it to the view, but shows the view to nobody yet.
func (f *fleet) join() *node {
	f.t.Helper()
	n := f.start()
	f.letIn(n)
	return n
}

// start starts a gateway that is in no view.
func (f *fleet) start() *node {
	f.t.Helper()
	n := &node{
		fleet: f, inbox: make(chan delivery, 1<<16), done: make(chan struct{}),
		changed: make(chan struct{}), seen: new(membership.View), until: time.Now().Add(always),
	}
	g := New(Config{Pools: map[string]PoolConfig{testPool: f.cfg}, Observer: noObserver{}})
	n.Gateway = g
	n.Start(n, n, nil)
	n.wg.Go(n.receive)
	return n
}

func (f *fleet) letIn(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	n.self = kmutex.Node(f.index)
	addr := fmt.Sprintf("gw-%d", n.self)
	n.name = cmp.Or(n.name, addr)
	f.gateways[n.self] = n
	f.change(func(v *membership.View) {
		v.Members = append(v.Members, membership.Member{Node: n.self, Name: n.name, PeerAddr: addr + ":1", Status: membership.StatusAlive})
	})
}

// change makes a new view. The caller holds the lock.
func (f *fleet) change(do func(*membership.View)) {
	f.view = &membership.View{
		Number: f.view.Number + 1, Lease: f.view.Lease, Members: slices.Clone(f.view.Members),
		Lost: slices.Clone(f.view.Lost), Pools: slices.Clone(f.view.Pools),
	}
	do(f.view)
}

// nextEpoch begins the pool's next epoch in a new view, but shows it to nobody yet.
func (f *fleet) nextEpoch(do func(*membership.View, *membership.Pool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.change(func(v *membership.View) {
		p := &v.Pools[0]
		p.Epoch++
		p.Began = f.index
		p.Owed = slices.Clone(p.Owed)
		do(v, p)
	})
}

func without(members []membership.Member, node kmutex.Node) []membership.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m membership.Member) bool { return m.Node == node })
}

// leave takes a gateway out of the view: a new epoch without it.
func (f *fleet) leave(self, home kmutex.Node) {
	f.takeOut(self, home)
	f.follow()
}

// takeOut is leave, with nobody told yet.
func (f *fleet) takeOut(self, home kmutex.Node) {
	f.nextEpoch(func(v *membership.View, p *membership.Pool) {
		v.Members, p.Home = without(v.Members, self), home
		f.lose(v, self, home, false)
	})
}

// suspend takes a gateway out whose tokens are owed from then on.
func (f *fleet) suspend(self, home kmutex.Node) {
	f.nextEpoch(func(v *membership.View, p *membership.Pool) {
		v.Members, p.Home, p.Owed = without(v.Members, self), home, append(p.Owed, self)
		f.lose(v, self, home, true)
	})
	f.follow()
}

// lose notes who answers for a lost gateway from now on, and for those that it
// answered for.
func (f *fleet) lose(v *membership.View, self, home kmutex.Node, leased bool) {
	name := f.gateways[self].name
	heir := home
	if next := v.Ring().Successors(name, 1); f.heirs && len(next) > 0 {
		m, _ := v.Named(next[0])
		heir = m.Node
	}
	v.Lost = append(v.Lost, membership.Lost{Node: self, At: f.index, Name: name, Leased: leased})
	for i := range v.Lost {
		if l := &v.Lost[i]; l.Node == self || l.Successor == self {
			l.Successor = heir
		}
	}
}

// expire gives back what lost gateways owed.
func (f *fleet) expire() {
	f.nextEpoch(func(_ *membership.View, p *membership.Pool) { p.Owed = nil })
	f.follow()
}

// pay gives back what one of them owed.
func (f *fleet) pay(lost kmutex.Node) {
	f.nextEpoch(func(_ *membership.View, p *membership.Pool) {
		p.Owed = slices.DeleteFunc(p.Owed, func(n kmutex.Node) bool { return n == lost })
	})
}

// setK changes k.
func (f *fleet) setK(k int) {
	f.nextEpoch(func(_ *membership.View, p *membership.Pool) { p.K = k })
	f.follow()
}

// follow shows every gateway the newest view.
func (f *fleet) follow() {
	f.show()
	synctest.Wait()
}

// show is follow without waiting until it has been taken in.
func (f *fleet) show() {
	for _, n := range f.all() {
		n.see()
	}
}

// Follow shows the gateway the newest view and waits until it has taken it in.
func (n *node) Follow() {
	n.see()
	synctest.Wait()
}

func (n *node) see() {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	if !n.cut {
		n.seen = n.fleet.view
	}
	n.wake()
}

// wake closes changed. The caller holds the lock.
func (n *node) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// isolate cuts a gateway off; its lease runs out after d.
func (n *node) isolate(d time.Duration) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.cut, n.until = true, time.Now().Add(d)
	n.wake()
}

// heal ends what isolate began.
func (n *node) heal() {
	n.uncut()
	n.Follow()
}

func (n *node) uncut() {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.cut = false
}

func (f *fleet) all() []*node {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*node
	for _, n := range f.gateways {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *node) int { return int(a.self) - int(b.self) })
	return all
}

func (f *fleet) close() {
	for _, n := range f.all() {
		n.stop()
	}
}

// stop ends a gateway without a word, as a crash does.
func (n *node) stop() {
	if err := n.Close(); err != nil {
		n.fleet.t.Error(err)
	}
	n.hangUp()
	n.wg.Wait()
}

// check holds the pool against the invariants, once nothing moves any more.
func (f *fleet) check() {
	f.t.Helper()
	synctest.Wait()
	time.Sleep(time.Second) // virtual: ask intervals end
	synctest.Wait()
	w := invariants.World{K: f.view.Pools[0].K, Classes: f.view.ForPool(f.view.Pools[0], 0, 0).Classes, Early: f.view.Pools[0].Binding == admission.BindingEarly}
	for _, n := range f.all() {
		if p := n.pool(testPool); p != nil {
			p.mu.Lock()
			w.Nodes = append(w.Nodes, p.core.Machine().State())
			p.mu.Unlock()
		}
	}
	if err := w.Check(); err != nil {
		f.t.Error(err)
	}
	for _, s := range w.Nodes {
		if len(s.Running) > 0 || len(s.Batches) > 0 || len(s.Pending) > 0 {
			f.t.Errorf("node %d is not at rest: %d running, %d batches, %d pending", s.Self, len(s.Running), len(s.Batches), len(s.Pending))
		}
	}
}

// View implements Views.
func (n *node) View() *membership.View {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	return n.seen
}

// Standing implements Views.
func (n *node) Standing() membership.Standing {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	if _, in := n.seen.Member(n.self); !in {
		return membership.Standing{}
	}
	// Also of one that has lapsed, as views may tell for a moment.
	return membership.Standing{Node: n.self, Until: n.until}
}

// Changed implements Views.
func (n *node) Changed() <-chan struct{} {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	return n.changed
}

// Rejoin implements Views: the test lets the gateway in when it likes.
func (n *node) Rejoin() {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	if _, in := n.fleet.view.Member(n.self); in && time.Now().Before(n.until) {
		return // it may still stand
	}
	n.self, n.until = 0, time.Now().Add(always)
}

// Recover implements Views.
func (n *node) Recover(_ context.Context, _ string, epoch uint64, why membership.Why) error {
	if n.View().Pools[0].Epoch == epoch {
		n.fleet.nextEpoch(func(_ *membership.View, p *membership.Pool) {
			if why.Whole {
				p.Classes = slices.DeleteFunc(slices.Clone(p.Classes), func(c membership.Class) bool { return c.K == 0 })
			}
		})
		for _, other := range n.fleet.all() {
			other.see()
		}
	}
	return nil
}

// TicketsMark implements Views.
func (*node) TicketsMark() string { return "" }

// SetTicketsMark implements Views.
func (*node) SetTicketsMark(string) error { return nil }

// UseTickets implements Views.
func (n *node) UseTickets(ctx context.Context, _ string, ttl time.Duration) error {
	f := n.fleet
	f.mu.Lock()
	if n.cut { // from those that would agree
		f.mu.Unlock()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	f.change(func(v *membership.View) {
		f.index++
		p := &v.Pools[0]
		p.Tickets, p.TicketTTL = cmp.Or(p.Tickets, f.index), max(p.TicketTTL, ttl)
	})
	f.mu.Unlock()
	f.show()
	return nil
}

// SetPeers implements Links. Meanwhile letters of new peers come for pools that have not followed yet.
func (n *node) SetPeers(kmutex.Node, []transport.Peer) []transport.Unsent {
	time.Sleep(time.Duration(n.pause.Load()))
	return nil
}

// MeanRTT implements Links.
func (n *node) MeanRTT() time.Duration { return 2 * n.fleet.delay }

// Send implements Links.
func (n *node) Send(to kmutex.Node, pool string, m kmutex.Message) error {
	n.fleet.mu.Lock()
	peer, cut := n.fleet.gateways[to], n.cut
	from := n.self
	_, known := n.seen.Member(to)
	if m.Kind == kmutex.KindRequest {
		n.asks++
	}
	n.fleet.mu.Unlock()
	if !known {
		return transport.ErrUnknownPeer
	}
	if cut || n.fleet.drop != nil && n.fleet.drop(m) {
		return nil // stays in the link's queue
	}
	select {
	case peer.inbox <- delivery{from, to, pool, m, time.Now().Add(n.fleet.delay)}:
		return nil
	case <-peer.done:
		return transport.ErrUnknownPeer
	}
}

// SendNow implements Links.
func (n *node) SendNow(to kmutex.Node, pool string, m kmutex.Message) error {
	if m.Kind == kmutex.KindRequest {
		n.fleet.mu.Lock()
		n.alone++
		n.fleet.mu.Unlock()
	}
	return n.Send(to, pool, m)
}

// SendPayload implements Links. It waits for the views of both ends, as links do.
func (n *node) SendPayload(ctx context.Context, to kmutex.Node, topic string, payload []byte) error {
	f := n.fleet
	for {
		f.mu.Lock()
		peer, from, changed := f.gateways[to], n.self, n.changed
		_, here := n.seen.Member(to)
		there := false
		if peer != nil && peer.self == to {
			_, there = peer.seen.Member(from)
			changed = peer.changed
		}
		cut := n.cut || peer == nil || peer.cut
		f.mu.Unlock()
		if !here {
			return transport.ErrUnknownPeer
		}
		if !cut && there {
			time.Sleep(f.delay)
			return peer.ReceivePayload(from, topic, payload)
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
			return transport.ErrLinkDown
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *node) receive() {
	for {
		select {
		case d := <-n.inbox:
			time.Sleep(time.Until(d.at))
			if !n.linked(d) {
				continue
			}
			if err := n.Deliver(d.from, d.pool, d.m); err != nil {
				n.fleet.t.Errorf("node %d: %v", n.self, err)
			}
		case <-n.done:
			return
		}
	}
}

// linked waits until this gateway's view has the sender, as links do, and
// reports whether both incarnations still are there.
func (n *node) linked(d delivery) bool {
	for {
		n.fleet.mu.Lock()
		mine := n.self == d.to && !n.cut
		_, in := n.seen.Member(d.from)
		_, coming := n.fleet.view.Member(d.from)
		changed := n.changed
		n.fleet.mu.Unlock()
		if !mine || in || !coming {
			return mine && in
		}
		select {
		case <-changed:
		case <-n.done:
			return false
		}
	}
}

// hangUp ends the node's links.
func (n *node) hangUp() { n.once.Do(func() { close(n.done) }) }

// Call implements Links.
func (n *node) Call(ctx context.Context, to transport.To, q transport.Question) ([]byte, error) {
	n.fleet.mu.Lock()
	n.asked++
	n.fleet.mu.Unlock()
	peer, cut := n.reach(to.Name)
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-peer.done:
		return nil, transport.ErrLinkDown
	default:
	}
	n.fleet.mu.Lock()
	stalls := time.Until(peer.stalled)
	n.fleet.mu.Unlock()
	if stalls > 0 {
		time.AfterFunc(stalls, func() { _, _ = peer.Answer(n.fleet.t.Context(), transport.Caller{Name: n.name}, q.Name, q.Body) })
		<-ctx.Done()
		return nil, ctx.Err()
	}
	answer, err := peer.Answer(ctx, transport.Caller{Name: n.name}, q.Name, q.Body)
	if _, cut := n.reach(to.Name); cut {
		return nil, transport.ErrLinkDown
	}
	return answer, err
}

// SendDatagram implements Links.
func (n *node) SendDatagram(to transport.To, ch wire.Channel, data []byte) error {
	peer, cut := n.reach(to.Name)
	if cut {
		return nil // nobody knows yet
	}
	select {
	case <-peer.done:
		return transport.ErrLinkDown
	default:
	}
	peer.Datagram(ch, transport.Caller{Name: n.name}, data)
	return nil
}

// reach returns the gateway of that name, and whether either is cut off.
func (n *node) reach(name string) (peer *node, cut bool) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	for _, g := range n.fleet.gateways {
		if g.name == name {
			peer = g
		}
	}
	return peer, n.cut || peer == nil || peer.cut
}

// noObserver is an Observer and a PoolObserver that does nothing.
type noObserver struct{}

func (noObserver) Pool(string) PoolObserver     { return noObserver{} }
func (noObserver) LeaseLost()                   {}
func (noObserver) TicketsWritten(time.Duration) {}
func (noObserver) Moved(kmutex.Trace)           {}
func (noObserver) Sent(kmutex.Kind)             {}
func (noObserver) Received(kmutex.Kind)         {}

func (noObserver) Recovered(Reason, time.Duration) {}
func (noObserver) Overtaken()                      {}
func (noObserver) AuditFailed()                    {}
func (noObserver) Slots(time.Time, int)            {}
