package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func startUpstream(t *testing.T, hold time.Duration) (*Upstream, string) {
	t.Helper()
	u := &Upstream{Hold: hold}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	return u, s.URL
}

// TestLoadClosedSystem: n clients keep n requests in flight;
// they count what the upstream counts, and nobody waits for admission.
func TestLoadClosedSystem(t *testing.T) {
	u, url := startUpstream(t, 20*time.Millisecond)
	var began, ended Stats
	res, err := Run(t.Context(), LoadConfig{
		Targets:  []Target{{Name: "a", URL: url, Clients: 6}, {URL: url + "/x", Clients: 2}},
		Warmup:   50 * time.Millisecond,
		Duration: time.Second,
		Opened:   func() { began = u.Stats() },
		Closed:   func() { ended = u.Stats() },
	})
	if err != nil {
		t.Fatal(err)
	}
	all, served := res.Overall, ended.Served-began.Served
	if ended.Max != 8 || all.Count == 0 || all.Errors != 0 || u.Stats().InFlight != 0 {
		t.Errorf("upstream: %+v, want 8 in flight; %d answers, failed %v", ended, all.Count, all.Failed)
	}
	// A busy machine does some between the ends of their windows.
	if d := int64(all.Count) - served; max(d, -d) > 16+served/4 {
		t.Errorf("clients count %d answers, the upstream %d", all.Count, served)
	}
	if a := res.Targets[0]; a.Name != "a" || a.Count+res.Targets[1].Count != all.Count {
		t.Errorf("targets %+v do not add up to %+v", res.Targets, all)
	}
	if all.Mean > 10*time.Millisecond {
		t.Errorf("access %v: the hold is not subtracted", all.Mean)
	}
}

// TestLoadErrors: refusals and dead targets are counted by status, and clients
// go on.
func TestLoadErrors(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	res, err := Run(t.Context(), LoadConfig{
		Targets:  []Target{{URL: s.URL, Clients: 2}, {URL: dead.URL, Clients: 1}},
		Duration: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	refused, none := res.Targets[0].Failed[503], res.Targets[1].Failed[0]
	if all := res.Overall; refused < 3 || none < 1 || all.Count != 0 || all.Errors != refused+none {
		t.Errorf("got %+v", res)
	}
}

// TestLoadStop: a stopped run waits for requests under way.
func TestLoadStop(t *testing.T) {
	u, url := startUpstream(t, 50*time.Millisecond)
	end := make(chan struct{})
	go func() {
		for u.Stats().Served <= 3 { // a client has its answer: it has asked again
			time.Sleep(time.Millisecond)
		}
		close(end)
	}()
	res, err := Run(t.Context(), LoadConfig{Targets: []Target{{URL: url, Clients: 3}}, Duration: time.Hour, Stop: end})
	if s := u.Stats(); err != nil || res.Overall.Count == 0 || s.Aborted > 0 || s.InFlight > 0 {
		t.Errorf("%v, %d answers, %+v", err, res.Overall.Count, s)
	}
}

// TestLoadCancel: the end of the context ends the run, at once.
func TestLoadCancel(t *testing.T) {
	u, url := startUpstream(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for u.Stats().InFlight < 3 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if res, err := Run(ctx, LoadConfig{Targets: []Target{{URL: url, Clients: 3}}, Duration: time.Hour, Drain: time.Hour}); err != nil || res.Overall.Count > 0 {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestSummary(t *testing.T) {
	var c, d client
	for i := time.Duration(1000); i > 0; i -= 2 {
		c.waits, d.waits = append(c.waits, i), append(d.waits, i-1)
	}
	c.failed = map[int]int{503: 2}
	got := summarize("all", []*client{&c, &d}, 2*time.Second)
	if got.Count != 1000 || got.PerSecond != 500 || got.Mean != 500 || got.P50 != 500 || got.P99 != 990 || got.Max != 1000 || got.Spread() != 500 || got.Errors != 2 {
		t.Errorf("%+v", got)
	}
	odd := summarize("", []*client{{waits: []time.Duration{3, 1, 2}}}, time.Second)
	one := summarize("", []*client{{waits: []time.Duration{7}}}, time.Second)
	if odd.P50 != 2 || odd.P99 != 3 || one.P50 != 7 || one.P99 != 7 {
		t.Errorf("three samples: %+v; one: %+v", odd, one)
	}
}
