package kgate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/goleak"

	"github.com/kgate/kgate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what takes no time on a machine that is not busy.
const patience = 20 * time.Second

const lease = 2 * time.Second

// cluster starts nodes that are ready, with one pool of k slots.
func cluster(t *testing.T, nodes, k int) []*kgate.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var all []*kgate.Node
	for i := range nodes {
		cfg := config(fmt.Sprintf("node-%d", i+1), k)
		cfg.Peers.Expect = nodes
		for _, n := range all {
			cfg.Peers.Join = append(cfg.Peers.Join, n.GossipAddr())
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
		Peers: kgate.Peers{Listen: "127.0.0.1:0", Gossip: "127.0.0.1:0", Lease: lease},
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

// TestHijack: the slot lasts until the hijacked connection is closed, long after the
// handler has returned.
func TestHijack(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	hijacked := make(chan net.Conn, 1)
	addr := serve(t, n, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- conn
	})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	conn := soon(t, "hijacked", hijacked)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if slot, err := n.Acquire(ctx, "p"); err == nil {
		t.Errorf("a second slot of one, %s", slot.Fence())
	}
	_, _ = conn.Close(), conn.Close()
	acquire(t, n).Release()
	eventually(t, "nothing in flight", func() bool { return n.Stats("p").InFlight == 0 })
}

// TestLoss: a node that is cut off gives up its slots within a lease, and its holders
// know.
func TestLoss(t *testing.T) {
	nodes := cluster(t, 3, 3)
	slot := acquire(t, nodes[0])
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	entered, causes := make(chan struct{}, 2), make(chan error, 2)
	addr := serve(t, nodes[0], func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		if kgate.FromContext(r.Context()).Valid() {
			t.Error("the slot of a node without a lease is valid")
		}
		causes <- context.Cause(r.Context())
	})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a request in the handler", entered)
	upgraded := dial(t, serve(t, nodes[0], func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		entered <- struct{}{}
		_, _ = conn.Read(make([]byte, 1)) // until the loss closes it
	}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	soon(t, "a hijacked connection", entered)
	began := time.Now()
	for _, n := range nodes[1:] {
		_ = n.Close() // without a word: there is no majority any more
	}
	soon(t, "the slot is lost", slot.Lost())
	if cause := soon(t, "the handler's context ends", causes); !errors.Is(cause, kgate.ErrLost) {
		t.Errorf("the handler's context has ended by %v", cause)
	}
	if _, err := upgraded.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the hijacked connection: %v", err)
	}
	took := time.Since(began)
	soon(t, "the context ends", ctx.Done())
	if cause := context.Cause(ctx); !errors.Is(cause, kgate.ErrLost) || slot.Valid() {
		t.Errorf("the context has ended by %v, valid %v", cause, slot.Valid())
	}
	// The lease counts from its last renewal, which was before.
	if took > lease+lease/2 {
		t.Errorf("noticed after %v, the lease is %v", took, lease)
	}
	t.Logf("lost after %v of a lease of %v", took, lease)
	var refused *kgate.Refused
	if _, err := nodes[0].Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrIsolated) || !errors.As(err, &refused) || refused.Pool != "p" {
		t.Errorf("a slot without a lease: %v", err)
	}
}

// TestWaitingPostLeaves: a client that waits with a body that nobody has read, and
// leaves, is out of the line within a second, over TLS, too.
func TestWaitingPostLeaves(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	slot := acquire(t, n)
	addr := serve(t, n, func(http.ResponseWriter, *http.Request) { t.Error("it was served") })
	conn := dial(t, addr, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbody")
	eventually(t, "in line", func() bool { return n.Stats("p").Waiting == 1 })
	began := time.Now()
	_ = conn.Close()
	eventually(t, "out of the line", func() bool { return n.Stats("p").Waiting == 0 })
	took := time.Since(began)
	t.Logf("out after %v", took)
	if took > 5*time.Second { // a quarter of a second, and what a busy machine adds
		t.Errorf("out after %v", took)
	}
	slot.Release()
}

// TestPanic passes, and gives the slot back.
func TestPanic(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	mine := errors.New("mine")
	h := n.Middleware("p")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(mine) }))
	for range 3 {
		func() {
			defer func() {
				if got := recover(); got != mine { //nolint:errorlint // the very value
					t.Errorf("panic: %v", got)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}()
	}
	if s := n.Stats("p"); s.InFlight != 0 || s.K != 1 {
		t.Errorf("%+v", s)
	}
}

// TestShutdown refuses who waits, lets finish who is in flight, and then the others
// have the slot at once.
func TestShutdown(t *testing.T) {
	nodes := cluster(t, 2, 1)
	slot := acquire(t, nodes[0])
	addr := serve(t, nodes[0], func(http.ResponseWriter, *http.Request) { t.Error("it was served") })
	client := dial(t, addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	granted := make(chan time.Time, 1)
	go func() {
		next, err := nodes[1].Acquire(context.Background(), "p")
		if err != nil {
			t.Error(err)
			return
		}
		granted <- time.Now()
		next.Release()
	}()
	eventually(t, "both wait", func() bool { return nodes[0].Stats("p").Waiting+nodes[1].Stats("p").Waiting == 2 })
	ended := make(chan error, 1)
	go func() { ended <- nodes[0].Shutdown(context.Background()) }()
	res, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Kgate-Refusal") != "draining" {
		t.Errorf("who waited got %s, %s", res.Status, res.Header)
	}
	if _, err := nodes[0].Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrDraining) {
		t.Errorf("a newcomer: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("it has not waited for who is in flight: %v", err)
	case <-granted:
		t.Error("two at once")
	case <-slot.Lost():
		t.Error("the slot is lost")
	case <-time.After(100 * time.Millisecond):
	}
	released := time.Now()
	slot.Release()
	t.Logf("the next node was served after %v", soon(t, "the next node is served", granted).Sub(released))
	if err := soon(t, "the end", ended); err != nil {
		t.Error(err)
	}
	soon(t, "done", nodes[0].Done())
	if _, err := nodes[0].Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrClosed) || !errors.Is(nodes[0].Err(), kgate.ErrClosed) {
		t.Errorf("after the end: %v, %v", err, nodes[0].Err())
	}
}

// TestShutdownBreaksOff what does not end in time.
func TestShutdownBreaksOff(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	slot := acquire(t, n)
	go func() {
		<-slot.Lost()
		slot.Release()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := n.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestStartThatFails leaves nothing open: TestMain looks for goroutines, and the port is
// free again.
func TestStartThatFails(t *testing.T) {
	first := cluster(t, 1, 1)[0]
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, c := range map[string]struct {
		ctx    context.Context
		change func(*kgate.Config)
		says   string
	}{
		"port taken":    {t.Context(), func(c *kgate.Config) { c.Peers.Listen = first.PeerAddr() }, "address already in use"},
		"gossip taken":  {t.Context(), func(c *kgate.Config) { c.Peers.Gossip = first.GossipAddr() }, "address already in use"},
		"context ended": {ended, func(*kgate.Config) {}, "context canceled"},
		"no k":          {t.Context(), func(c *kgate.Config) { c.Pools[0].K = 0 }, "set how many"},
		"open to all":   {t.Context(), func(c *kgate.Config) { c.Peers.Listen = ":0" }, "set Peers.Key"},
		"no key":        {t.Context(), func(c *kgate.Config) { c.Peers.Key = []byte("x") }, "kgate keygen"},
	} {
		cfg := config("node-2", 1)
		c.change(&cfg)
		if n, err := kgate.Start(c.ctx, cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", what, n, err)
		}
	}
}

// TestStartContext: the end of Start's context is not the end of the node.
func TestStartContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n, err := kgate.Start(ctx, config("node-1", 1))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := n.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	acquire(t, n).Release()
	if err := n.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNotReady: a node that waits for others says so, and admits nothing.
func TestNotReady(t *testing.T) {
	cfg := config("node-1", 1)
	cfg.Peers.Expect = 3
	n, err := kgate.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := n.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not in the cluster") {
		t.Error(err)
	}
	if _, err := n.Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrIsolated) {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Ready(t.Context()); !errors.Is(err, kgate.ErrClosed) {
		t.Error(err)
	}
}

// TestRegistry: two nodes' metrics and the program's own fit in one registry.
func TestRegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, n := range cluster(t, 2, 1) {
		acquire(t, n).Release()
		if err := reg.Register(n); err != nil {
			t.Fatal(err)
		}
		own := prometheus.NewRegistry()
		if err := own.Register(n); err != nil {
			t.Fatal(err)
		}
		families, err := own.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "kgate_") {
				t.Errorf("the library brings %s", f.GetName())
			}
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	admitted := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "kgate_requests_total" && l.GetValue() == "admitted" {
					admitted += m.GetCounter().GetValue()
				}
			}
		}
	}
	if admitted != 2 {
		t.Errorf("%v requests admitted, 2 were", admitted)
	}
}

// TestChanges: SetK and Reload count at once; the line is bounded.
func TestChanges(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	defer acquire(t, n).Release()
	if err := n.SetK(t.Context(), "p", 2, 1); err != nil {
		t.Fatal(err)
	}
	defer acquire(t, n).Release()
	if err := n.SetK(t.Context(), "p", 3, 1); err == nil {
		t.Error("k was 2, not 1")
	}
	cfg := config("", 2)
	cfg.Pools[0].QueueLimit = 1
	cfg.Pools = append(cfg.Pools, kgate.Pool{Name: "q", K: 1})
	if err := n.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new pool", func() bool { return n.Stats("q").K == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := n.Acquire(ctx, "p")
		waited <- err
	}()
	eventually(t, "one waits", func() bool { return n.Stats("p").Waiting == 1 })
	if _, err := n.Acquire(t.Context(), "p"); !errors.Is(err, kgate.ErrQueueFull) {
		t.Error(err)
	}
	cancel()
	if err := soon(t, "the end of the wait", waited); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := n.Acquire(t.Context(), "nosuch"); !errors.Is(err, kgate.ErrUnknownPool) {
		t.Error(err)
	}
	cfg.Pools[0].K = 0
	if err := n.Reload(cfg); err == nil {
		t.Error("a pool without k")
	}
}

// TestTransport: of requests that Middleware has admitted and of slots of Acquire.
func TestTransport(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	fences := make(chan string, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fences <- r.Header.Get("Kgate-Fence") }))
	defer upstream.Close()
	client := http.Client{Transport: n.Transport(nil)}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context) {
		want := kgate.FromContext(ctx).Fence()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
		if got := <-fences; got != want || !strings.HasPrefix(got, "p/") {
			t.Errorf("fence %q, want %q", got, want)
		}
	}
	n.Middleware("p")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { get(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	slot := acquire(t, n)
	defer slot.Release()
	ctx, cancel := slot.Context(t.Context())
	defer cancel()
	get(ctx)
}
