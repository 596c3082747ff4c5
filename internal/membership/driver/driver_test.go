package driver

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/views"
)

// network is one in memory, with a gossip that says what is so.
type network struct {
	mu      sync.Mutex
	layers  map[string]*layer
	members map[string]serfring.Member
	changed chan struct{}
}

type layer struct {
	n      *network
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *layer) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		delete(l.n.layers, l.addr)
		close(l.closed)
	})
	return nil
}

func (l *layer) Addr() net.Addr { return &net.TCPAddr{} }

func (l *layer) Dial(_ context.Context, addr string) (net.Conn, error) {
	l.n.mu.Lock()
	to := l.n.layers[addr]
	l.n.mu.Unlock()
	if to == nil {
		return nil, syscall.ECONNREFUSED
	}
	a, b := net.Pipe()
	select {
	case to.conns <- b:
		return a, nil
	case <-to.closed:
		return nil, syscall.ECONNREFUSED
	}
}

type gossip struct {
	n    *network
	name string
}

func (g gossip) Members() (all []serfring.Member) {
	g.n.mu.Lock()
	defer g.n.mu.Unlock()
	for _, m := range g.n.members {
		all = append(all, m)
	}
	return all
}

func (g gossip) Changed() <-chan struct{} {
	g.n.mu.Lock()
	defer g.n.mu.Unlock()
	return g.n.changed
}

func (g gossip) SetBoot(boot string) error {
	g.n.say(g.name, func(m *serfring.Member) { m.Boot = boot })
	return nil
}

// say changes what gossip knows of a gateway.
func (n *network) say(name string, change func(*serfring.Member)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.members[name]
	change(&m)
	n.members[name] = m
	close(n.changed)
	n.changed = make(chan struct{})
}

type gateway struct {
	*Cluster
	n    *network
	name string
	dir  string
}

func (n *network) start(t *testing.T, name, boot, dir string, expect int) *gateway {
	t.Helper()
	addr := name + ":7080"
	l := &layer{n: n, addr: addr, conns: make(chan net.Conn, 16), closed: make(chan struct{})}
	n.mu.Lock()
	n.layers[addr] = l
	n.mu.Unlock()
	n.say(name, func(m *serfring.Member) {
		*m = serfring.Member{Name: name, PeerAddr: addr, Boot: boot, Expect: expect, Status: serfring.StatusAlive}
	})
	c, err := Start(Config{
		Name: name, Boot: boot, PeerAddr: addr, DataDir: dir, BootstrapExpect: expect, Lease: time.Second,
		Discovery: gossip{n, name}, Peers: l, Logger: slog.New(slog.NewTextHandler(testWriter{t, name}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{c, n, name, dir}
	// Its owner has nothing in flight, so it comes back at once.
	c.wg.Go(func() {
		for {
			changed := c.Changed()
			c.Rejoin()
			select {
			case <-changed:
			case <-c.closing.Done():
				return
			}
		}
	})
	return g
}

type testWriter struct {
	t    *testing.T
	name string
}

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s: %s", w.name, b)
	return len(b), nil
}

// kill ends a gateway without a word.
func (g *gateway) kill(t *testing.T) {
	t.Helper()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	g.n.say(g.name, func(m *serfring.Member) { m.Status = serfring.StatusFailed })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func whole(gateways ...*gateway) func() bool {
	return func() bool {
		for _, g := range gateways {
			if !g.Standing().Valid(time.Now()) || len(g.View().Members) != len(gateways) {
				return false
			}
		}
		return true
	}
}

// Gateways found a cluster, agree on k, lose their leader and get it back, and go on from their
// disks when all have been killed.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{layers: make(map[string]*layer), members: make(map[string]serfring.Member), changed: make(chan struct{})}
		root := t.TempDir()
		var all []*gateway
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, n.start(t, name, name+"1", filepath.Join(root, name), 3))
		}
		until(t, "all stand", whole(all...))
		define := views.Define{Name: "p", K: 2, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}
		if err := all[1].DefinePool(t.Context(), define); err != nil {
			t.Fatal(err)
		}
		for i, g := range all {
			if g.Leads() {
				began := time.Now()
				g.kill(t)
				rest := []*gateway{all[(i+1)%3], all[(i+2)%3]}
				if err := rest[0].SetK(t.Context(), views.SetK{Name: "p", K: 5}); err != nil {
					t.Fatal(err)
				}
				t.Logf("agreed %v after the leader was killed", time.Since(began).Round(time.Millisecond))
				until(t, "two stand", whole(rest...))
				all[i] = n.start(t, g.name, g.name+"2", g.dir, 3)
				break
			}
		}
		until(t, "all stand again", whole(all...))
		for _, g := range all {
			g.kill(t)
		}
		for i, g := range all {
			all[i] = n.start(t, g.name, g.name+"3", g.dir, 3)
		}
		until(t, "all stand after a restart", whole(all...))
		for _, l := range all[0].View().Lost {
			t.Logf("%+v", l)
		}
		for _, g := range all {
			if p, _ := g.View().Pool("p"); p.K != 5 {
				t.Errorf("%s has k %d", g.name, p.K)
			}
		}
		if err := all[0].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		until(t, "two are left", whole(all[1:]...))
		for _, g := range all[1:] {
			g.kill(t)
		}
	})
}
