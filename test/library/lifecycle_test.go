package library

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
	ports "github.com/kgate/kgate/test/cluster"
)

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
	checkClosed(t, nodes[0])
	own := acquire(t, nodes[1])
	defer own.Release()
	ctx, cancel := own.Context(t.Context())
	defer cancel()
	_, err = nodes[0].Transport(nil).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1", nil))
	if says(t, "another node's Transport", err, "the node that has granted the slot"); !errors.Is(err, kgate.ErrLost) {
		t.Error(err)
	}
}

// checkClosed: whatever is asked of a node after its end, the answer is that it has ended.
func checkClosed(t *testing.T, n *kgate.Node) {
	t.Helper()
	ctx := t.Context()
	_, acquire := n.Acquire(ctx, "p")
	_, request := n.RequestTicket(ctx, "p", time.Minute)
	_, try := n.TryAcquire(ctx, "p")
	ticket := n.Ticket("an id")
	_, renew := ticket.Renew(ctx)
	_, redeem := ticket.Redeem(ctx)
	for what, err := range map[string]error{
		"Err": n.Err(), "Ready": n.Ready(ctx), "Shutdown": n.Shutdown(ctx), "Acquire": acquire, "RequestTicket": request,
		"TryAcquire": try, "Do": n.Do(ctx, "p", nil),
		"Ticket.Wait": ticket.Wait(ctx), "Ticket.Cancel": ticket.Cancel(ctx), "Ticket.Renew": renew, "Ticket.Redeem": redeem, "SetK": n.SetK(ctx, "p", 2),
		"Reload": n.Reload(config("node-1", 1)), "SetPeerKey": n.SetPeerKey([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)))),
	} {
		if !errors.Is(err, kgate.ErrClosed) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
}

// TestShutdownGivesBack: the slots of a node that shuts down are the others' at once, not
// when its lease has run out.
func TestShutdownGivesBack(t *testing.T) {
	const k, long = 3, 20 * time.Second
	nodes := cluster(t, 3, k, func(c *kgate.Config) { c.Peers.Lease = long })
	all := func(n *kgate.Node) {
		for range k {
			defer acquire(t, n).Release()
		}
	}
	all(nodes[0])
	began := time.Now()
	if err := nodes[0].Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	all(nodes[1])
	took := time.Since(began)
	t.Logf("the others have all slots after %v", took)
	if took > long/2 {
		t.Errorf("the others have all slots after %v, the lease is %v", took, long)
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

// TestEndsAtOnce: Shutdown and Close may be called beside each other, and more than once.
func TestEndsAtOnce(t *testing.T) {
	for round := range 5 {
		nodes := cluster(t, 2, 1)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _ = nodes[0].Shutdown(t.Context()) })
		}
		wg.Go(func() {
			time.Sleep(time.Duration(round) * time.Millisecond)
			_ = nodes[0].Close()
		})
		wg.Wait()
		soon(t, "done", nodes[0].Done())
	}
}

// insidePackage matches the name of one with which the text of an error begins.
var insidePackage = regexp.MustCompile(`(?m)(^|: )(admission|clusterkey|gateway|membership|proxy|serfring|transport): `)

// says fails the test unless the text of an error says what to do, in the words of
// package kgate.
func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "kgate: ") || !strings.Contains(err.Error(), want) || insidePackage.MatchString(err.Error()) {
		t.Errorf("%s: %v; want %q, and no package but kgate", what, err, want)
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
		"no context":    {nil, func(*kgate.Config) {}, "context.Background()"},
		"port taken":    {t.Context(), func(c *kgate.Config) { c.Peers.Listen = first.PeerAddr() }, "the address for other gateways"},
		"taken":         {t.Context(), func(c *kgate.Config) { c.Peers.Listen = first.PeerAddr() }, "already in use; stop the process that has it"},
		"no port":       {t.Context(), func(c *kgate.Config) { c.Peers.Listen = "127.0.0.1" }, "Config.Peers.Listen: the address"},
		"join no port":  {t.Context(), func(c *kgate.Config) { c.Peers.Join = []string{"10.0.0.2"} }, "write host:port"},
		"a lease of 3":  {t.Context(), func(c *kgate.Config) { c.Peers.Lease = 3 }, "3*time.Second"},
		"no lease":      {t.Context(), func(c *kgate.Config) { c.Peers.Lease = -time.Second }, "3*time.Second"},
		"nobody":        {t.Context(), func(c *kgate.Config) { c.Peers.Expect = -1 }, "how many nodes"},
		"context ended": {ended, func(*kgate.Config) {}, "context canceled"},
		"bad name":      {t.Context(), func(c *kgate.Config) { c.Pools[0].Name = "P/.." }, "cannot name a pool"},
		"no k":          {t.Context(), func(c *kgate.Config) { c.Pools[0].K = 0 }, "set how many"},
		"too large a k": {t.Context(), func(c *kgate.Config) { c.Pools[0].K = 1 << 20 }, "from 1 to 65536"},
		"no line":       {t.Context(), func(c *kgate.Config) { c.Pools[0].QueueLimit = -1 }, "Config.Pools[0].QueueLimit: it is -1"},
		"a header":      {t.Context(), func(c *kgate.Config) { c.Pools[0].ClientHeader = "X Key" }, "is not the name of a header"},
		"a weight":      {t.Context(), func(c *kgate.Config) { c.Pools[0].Fair, c.Pools[0].ClientWeights = true, map[string]float64{"a": 0} }, `the weight of "a" is 0`},
		"weights alone": {t.Context(), func(c *kgate.Config) { c.Pools[0].ClientWeights = map[string]float64{"a": 1} }, "without Fair"},
		"a hold":        {t.Context(), func(c *kgate.Config) { c.Pools[0].HoldMax = -1 }, "Config.Pools[0].HoldMax: it is -1ns"},
		"a name":        {t.Context(), func(c *kgate.Config) { c.Name = "a\nb" }, "without control characters"},
		"any address":   {t.Context(), func(c *kgate.Config) { c.Peers.Advertise = netip.IPv4Unspecified() }, "one address of this machine"},
		"two of a name": {t.Context(), func(c *kgate.Config) { c.Pools = append(c.Pools, c.Pools[0]) }, "there are two"},
		"open to all":   {t.Context(), func(c *kgate.Config) { c.Peers.Listen = ":0" }, "set Key"},
		"no key":        {t.Context(), func(c *kgate.Config) { c.Peers.Key = []byte("x") }, "kgate keygen"},
	} {
		cfg := config("node-2", 1)
		c.change(&cfg)
		_, err := kgate.Start(c.ctx, cfg)
		says(t, what, err, c.says)
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

// TestNotReady: a node that waits for others says what it waits for, and admits nothing.
func TestNotReady(t *testing.T) {
	own := ports.ReservePort(t)
	for missing, change := range map[string]func(*kgate.Peers){
		"waiting for 3 gateways": func(p *kgate.Peers) { p.Expect = 3 },
		"remove the list":        func(p *kgate.Peers) { p.Listen, p.Join = own, []string{own} },
		"connection refused":     func(p *kgate.Peers) { p.Join = []string{own} },
	} {
		cfg := config("node-1", 1)
		change(&cfg.Peers)
		n, err := kgate.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, missing, func() bool { return strings.Contains(n.NotReady(), missing) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := n.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), missing) {
			t.Error(err)
		}
		cancel()
		_, err = n.TryAcquire(t.Context(), "p")
		if says(t, "a slot", err, missing); !errors.Is(err, kgate.ErrIsolated) {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err = n.Acquire(ctx, "p")
		if says(t, "a wait for a slot", err, missing); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		waits := make(chan error, 1)
		go func() {
			_, err := n.Acquire(context.Background(), "p")
			waits <- err
		}()
		select {
		case err := <-waits:
			t.Errorf("it does not wait: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Ready(t.Context()); !errors.Is(err, kgate.ErrClosed) {
			t.Error(err)
		}
		if err := soon(t, "the end of the wait", waits); !errors.Is(err, kgate.ErrClosed) {
			t.Errorf("who waited for a node that has closed: %v", err)
		}
	}
}

// TestRegistry: two nodes' metrics and the program's own fit in one registry.
func TestRegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, n := range cluster(t, 2, 1) {
		acquire(t, n).Release()
		if err := reg.Register(gateway.Collector(n)); err != nil {
			t.Fatal(err)
		}
		own := prometheus.NewRegistry()
		if err := own.Register(gateway.Collector(n)); err != nil {
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
	if err := n.SetK(t.Context(), "p", 2); err != nil {
		t.Fatal(err)
	}
	defer acquire(t, n).Release()
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
	if _, err := n.Acquire(ctx, "q"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
	_, err := n.Acquire(t.Context(), "nosuch")
	if says(t, "a pool", err, "there are: p, q"); !errors.Is(err, kgate.ErrUnknownPool) {
		t.Error(err)
	}
	says(t, "a k", n.SetK(t.Context(), "p", 0), "between 1 and 65536")
	says(t, "k of a pool", n.SetK(t.Context(), "nosuch", 1), `no pool "nosuch"`)
	cfg.Pools[0].K = 0
	if err := n.Reload(cfg); err == nil {
		t.Error("a pool without k")
	}
}

// TestPeerKey: a cluster's key is replaced without an outage, and who comes later has
// the new one only.
func TestPeerKey(t *testing.T) {
	key := func(b byte) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n"
	}
	first, second := key('a'), key('b')
	start := func(name, key string, join ...string) *kgate.Node {
		cfg := config(name, 1)
		cfg.Peers.Key, cfg.Peers.Join = []byte(key), join
		n, err := kgate.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		if err := n.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		return n
	}
	one := start("node-1", first)
	two := start("node-2", first, one.PeerAddr())
	for _, keys := range []string{first + second, second + first, second} {
		for _, n := range []*kgate.Node{one, two} {
			if err := n.SetPeerKey([]byte(keys)); err != nil {
				t.Fatal(err)
			}
		}
	}
	three := start("node-3", second, one.PeerAddr())
	for _, n := range []*kgate.Node{one, two, three} {
		acquire(t, n).Release()
	}
	if err := one.SetPeerKey([]byte("x")); err == nil || !strings.Contains(err.Error(), "kgate keygen") {
		t.Error(err)
	}
}

// TestForgotten: a slot that nobody releases is named in the log, with its note, once after
// HoldMax, and at Shutdown, and in the status, however the program has got it.
func TestForgotten(t *testing.T) {
	note := kgate.Note("nightly export")
	for name, take := range map[string]func(*kgate.Node) error{
		"Acquire": func(n *kgate.Node) error {
			_, err := n.Acquire(t.Context(), "p", note)
			return err
		},
		"Redeem": func(n *kgate.Node) error {
			ticket, err := n.RequestTicket(t.Context(), "p", time.Minute, note)
			if err != nil {
				return err
			}
			_, err = ticket.Redeem(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { forgotten(t, take) })
	}
}

func forgotten(t *testing.T, take func(*kgate.Node) error) {
	t.Helper()
	var text syncBuffer
	n := cluster(t, 1, 2, func(c *kgate.Config) {
		c.Pools[0].HoldMax, c.Logger = 100*time.Millisecond, slog.New(slog.NewTextHandler(&text, nil))
	})[0]
	if err := take(n); err != nil {
		t.Fatal(err)
	}
	said := func(what string) bool {
		for line := range strings.Lines(text.String()) {
			if strings.Contains(line, what) && strings.Contains(line, `note="nightly export"`) && strings.Contains(line, "pool=p") {
				return true
			}
		}
		return false
	}
	eventually(t, "it is named", func() bool { return said("held for longer than its pool allows") })
	time.Sleep(2 * time.Second)
	if lines := strings.Count(text.String(), "held for longer"); lines != 1 {
		t.Errorf("it is named %d times", lines)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/v1/status", nil)
	r.RemoteAddr = "127.0.0.1:1"
	if gateway.Admin(n).ServeHTTP(w, r); !strings.Contains(w.Body.String(), "held for longer") || !strings.Contains(w.Body.String(), "nightly export") {
		t.Errorf("the status does not name it: %s", w.Body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || !said("still held at the end") {
		t.Errorf("%v, %s", err, text.String())
	}
}

// TestEndTogether: three nodes that shut down at once, in use, warn of nothing.
func TestEndTogether(t *testing.T) {
	for range 3 {
		var text syncBuffer
		nodes := cluster(t, 3, 2, func(c *kgate.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})).With(slog.String("of", c.Name))
		})
		var all sync.WaitGroup
		for _, n := range nodes {
			for range 3 {
				all.Go(func() {
					for err := error(nil); err == nil; {
						err = n.Do(context.Background(), "p", func(context.Context) error { return nil })
					}
				})
			}
		}
		time.Sleep(50 * time.Millisecond)
		for _, n := range nodes {
			all.Go(func() {
				if err := n.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if said := text.String(); said != "" {
			t.Error(said)
		}
	}
}

// syncBuffer is a text that grows.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
