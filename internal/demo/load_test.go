package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

func startUpstream(t *testing.T, cfg UpstreamConfig) (*Upstream, string) {
	t.Helper()
	u, err := NewUpstream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	return u, s.URL
}

// TestLoadClosedSystem: n clients that do not think keep n requests in flight;
// they count what the upstream counts, and nobody waits for admission.
func TestLoadClosedSystem(t *testing.T) {
	u, url := startUpstream(t, UpstreamConfig{Hold: Distribution{Mean: 20 * time.Millisecond, SCV: 1}, K: 8, Seed: 1})
	var served Stats
	progress := 0
	res, err := Run(t.Context(), LoadConfig{
		Targets:       []Target{{Name: "a", URL: url, Clients: 6}, {URL: url + "/x", Clients: 2}},
		Warmup:        50 * time.Millisecond,
		Duration:      time.Second,
		Opened:        u.Reset,
		Closed:        func() { served = u.Stats() },
		Progress:      func(Progress) { progress++ },
		ProgressEvery: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if served.Max != 8 || served.Busy <= 0 || served.Busy > 1 {
		t.Errorf("upstream: %+v, want 8 in flight", served)
	}
	if got := res.Overall.Access.Count; got == 0 || res.Overall.Errors() != 0 {
		t.Errorf("%d answers, failed %v", got, res.Overall.Failed)
	}
	// A busy machine does some between the ends of their windows.
	if d := int64(res.Overall.Access.Count) - served.Served; max(d, -d) > 16+served.Served/4 {
		t.Errorf("clients count %d answers, the upstream %d", res.Overall.Access.Count, served.Served)
	}
	if a, all := res.Targets[0], res.Overall; a.Name != "a" || a.Access.Count+res.Targets[1].Access.Count != all.Access.Count {
		t.Errorf("targets %+v do not add up to %+v", res.Targets, all)
	}
	if res.Targets[1].Name != url+"/x" {
		t.Errorf("name %q", res.Targets[1].Name)
	}
	if res.Overall.Latency.Mean < 10*time.Millisecond || res.Overall.Access.Mean > res.Overall.Latency.Mean/2 {
		t.Errorf("latency %v, access %v: the hold is not subtracted", res.Overall.Latency.Mean, res.Overall.Access.Mean)
	}
	if progress == 0 {
		t.Errorf("%d progress reports", progress)
	}
	if got := u.Stats().InFlight; got != 0 {
		t.Errorf("%d in flight after the end", got)
	}
}

// TestLoadQueueHeader: the gateway's queue time is read from Server-Timing.
func TestLoadQueueHeader(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Server-Timing", `db;dur=1, kgate;desc="queue";dur=7.5`)
		w.Header().Set("Connection", "close")
	}))
	defer s.Close()
	res, err := Run(t.Context(), LoadConfig{Targets: []Target{{URL: s.URL, Clients: 2}}, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if q := res.Overall.Queue; q.Count == 0 || q.Mean != 7500*time.Microsecond || q.Max != q.P50 {
		t.Errorf("queue times %+v", q)
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
	if res.Targets[0].Failed[503] < 3 || res.Targets[1].Failed[0] < 1 || res.Overall.Access.Count != 0 {
		t.Errorf("got %+v", res.Overall)
	}
	if res.Overall.Errors() != res.Targets[0].Failed[503]+res.Targets[1].Failed[0] {
		t.Errorf("errors do not add up: %+v", res.Overall)
	}
}

// TestLoadStop: a stopped run waits for requests under way.
func TestLoadStop(t *testing.T) {
	u, url := startUpstream(t, UpstreamConfig{Hold: Distribution{Mean: 50 * time.Millisecond}})
	end := make(chan struct{})
	stop := sync.OnceFunc(func() { close(end) })
	res, err := Run(t.Context(), LoadConfig{
		Targets:       []Target{{URL: url, Clients: 3}},
		Duration:      time.Hour,
		Stop:          end,
		ProgressEvery: time.Millisecond,
		Progress: func(p Progress) {
			if p.Targets[0].Completed > 0 {
				stop()
			}
		},
	})
	if s := u.Stats(); err != nil || res.Overall.Access.Count == 0 || s.Served == 0 || s.Aborted > 0 {
		t.Errorf("%v, %d answers, %+v", err, res.Overall.Access.Count, s)
	}
}

// TestLoadCancel: the end of the context ends the run, at once.
func TestLoadCancel(t *testing.T) {
	_, url := startUpstream(t, UpstreamConfig{Hold: Distribution{Mean: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, LoadConfig{
		Targets:       []Target{{URL: url, Clients: 3}},
		Duration:      time.Hour,
		ProgressEvery: time.Millisecond,
		Progress: func(p Progress) {
			if p.Targets[0].Waiting == 3 {
				cancel()
			}
		},
	})
	cancel()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLoadValidate(t *testing.T) {
	for _, cfg := range []LoadConfig{
		{},
		{Duration: time.Second, Targets: []Target{{URL: "https://x"}}},
		{Duration: time.Second, Targets: []Target{{URL: "http://x", Clients: -1}}},
		{Duration: 0, Targets: []Target{{URL: "http://x"}}},
		{Duration: time.Second, Targets: []Target{{URL: "http://x"}}, Think: Distribution{Mean: -1}},
	} {
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// TestUpstreamChunks: the header comes first, the body in parts, all of it.
func TestUpstreamChunks(t *testing.T) {
	u, url := startUpstream(t, UpstreamConfig{Hold: Distribution{Mean: 20 * time.Millisecond}, BodyBytes: 10, Chunks: 4})
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if u.Stats().InFlight != 1 {
		t.Error("the header did not come while the request was held")
	}
	if got := res.Header.Get(HoldHeader); got != "20.000" {
		t.Errorf("hold %q", got)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil || string(b) != "ok\nok\nok\no" {
		t.Errorf("body %q, %v", b, err)
	}
	if s := u.Stats(); s.InFlight != 0 || s.Served != 1 {
		t.Errorf("after the last byte: %+v", s)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestUpstreamEndpoints: another process reads and resets the counts.
func TestUpstreamEndpoints(t *testing.T) {
	_, url := startUpstream(t, UpstreamConfig{K: 2})
	defer http.DefaultClient.CloseIdleConnections()
	get := func() (s Stats) {
		t.Helper()
		res, err := http.Get(url + "/stats")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 3 {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	if s := get(); s.Served != 3 || s.Max != 1 {
		t.Errorf("got %+v", s)
	}
	res, err := http.Post(url+"/reset", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if s := get(); s.Served != 0 || s.Max != 0 {
		t.Errorf("after reset: %+v", s)
	}
}

func TestQuantiles(t *testing.T) {
	var sample []time.Duration
	for i := 1000; i > 0; i-- {
		sample = append(sample, time.Duration(i))
	}
	got := summarize(sample)
	want := Times{Count: 1000, Mean: 500, P50: 500, P90: 900, P99: 990, Max: 1000}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Spread() != 500 || got.RelativeSpread() != 1 {
		t.Errorf("spread %v, %v", got.Spread(), got.RelativeSpread())
	}
	if odd := summarize([]time.Duration{3, 1, 2}); odd.P50 != 2 || odd.P99 != 3 {
		t.Errorf("three samples: %+v", odd)
	}
	if one := summarize([]time.Duration{7}); one.P50 != 7 || one.P99 != 7 {
		t.Errorf("one sample: %+v", one)
	}
	if none := summarize(nil); none != (Times{}) || none.RelativeSpread() != 0 {
		t.Errorf("no sample: %+v", none)
	}
}
