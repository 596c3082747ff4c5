package node

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy"
)

// An unanswered probe of memberlist outlives its Shutdown by the rest of the probe's interval.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probe"))
}

// alone returns the configuration of a single gateway with one pool of one slot.
func alone(t *testing.T) Config {
	t.Helper()
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Name: "gw-1", Version: "test", Logger: slog.New(slog.DiscardHandler),
		Peers: Peers{
			Links:  Links{Listen: "127.0.0.1:0", Advertise: "127.0.0.1"},
			Gossip: Gossip{Expect: 1}, Lease: 3 * time.Second,
		},
		Pools: []Pool{{
			Pool: proxy.Pool{Name: "p", Upstreams: []*url.URL{at}}, K: 1,
			Binding: admission.BindingLate, Reclaim: admission.ReclaimLease,
		}},
		Proxy: proxy.Config{Routes: []proxy.Route{{Pool: "p"}}},
	}
}

func start(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		ready, reason := n.Ready()
		if ready {
			return n
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal(reason)
		}
	}
}

// TestHoldFits: if a lost gateway's slots come back after hold.max, no gateway may have a longer
// hold.max.
func TestHoldFits(t *testing.T) {
	cfg := alone(t)
	cfg.Pools[0].Reclaim, cfg.Pools[0].HoldMax = admission.ReclaimHold, time.Minute
	n := start(t, cfg)
	for hold, fits := range map[time.Duration]bool{time.Second: true, time.Minute: true, 2 * time.Minute: false, 0: false} {
		next := cfg
		next.Pools = []Pool{cfg.Pools[0]}
		next.Pools[0].Reclaim, next.Pools[0].HoldMax = admission.ReclaimLease, hold
		for what, err := range map[string]error{"reload": n.Reload(next), "start": n.pools.define(t.Context(), next.Pools)} {
			if (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "set the longest hold to 1m0s or less") {
				t.Errorf("%s with hold.max %v: %v", what, hold, err)
			}
		}
	}
}

// TestAgreedOnOtherValues: the log names each configured value of a pool that differs from the agreed
// value.
func TestAgreedOnOtherValues(t *testing.T) {
	cfg := alone(t)
	cfg.Pools[0].Reclaim, cfg.Pools[0].HoldMax = admission.ReclaimHold, time.Minute
	n := start(t, cfg)
	for says, change := range map[string]func(*Pool){
		"":                           func(*Pool) {},
		"configured_k=2":             func(p *Pool) { p.K = 2 },
		"configured_binding=early":   func(p *Pool) { p.Binding = admission.BindingEarly },
		"configured_reclaim=lease":   func(p *Pool) { p.Reclaim = admission.ReclaimLease },
		"configured_hold_max=1s":     func(p *Pool) { p.HoldMax = time.Second },
		"configured_rate=\"{Down:1 ": func(p *Pool) { p.Rate.Down = 1 },
	} {
		next := cfg.Pools[0]
		change(&next)
		var log strings.Builder
		pools := &pools{gateway: n.pools.gateway, peers: n.pools.peers, log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := pools.define(t.Context(), []Pool{next}); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("the log has no %q:\n%s", says, got)
		}
	}
}

// TestStartThatFails leaves nothing open: TestMain looks for goroutines.
func TestStartThatFails(t *testing.T) {
	first := start(t, alone(t))
	for what, change := range map[string]func(*Config){
		"peer port taken": func(c *Config) { c.Peers.Links.Listen = first.PeerAddr().String() },
		"no such pool":    func(c *Config) { c.Proxy.Routes[0].Pool = "q" },
	} {
		cfg := alone(t)
		change(&cfg)
		if _, err := Start(t.Context(), cfg); err == nil {
			t.Errorf("%s: started", what)
		}
	}
}
