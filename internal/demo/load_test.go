package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// TestLoadClosedSystem: n clients keep n requests in flight;
// they count what the upstream counts, and nobody waits for admission.
func TestLoadClosedSystem(t *testing.T) {
	u, url := startUpstream(t, UpstreamConfig{Hold: 20 * time.Millisecond, SCV: 1, K: 8, Seed: 1})
	var served Stats
	res, err := Run(t.Context(), LoadConfig{
		Targets:  []Target{{Name: "a", URL: url, Clients: 6}, {URL: url + "/x", Clients: 2}},
		Warmup:   50 * time.Millisecond,
		Duration: time.Second,
		Opened:   u.Reset,
		Closed:   func() { served = u.Stats() },
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
	if res.Overall.Access.Mean > 10*time.Millisecond {
		t.Errorf("access %v: the hold is not subtracted", res.Overall.Access.Mean)
	}
	if got := u.Stats().InFlight; got != 0 {
		t.Errorf("%d in flight after the end", got)
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
	u, url := startUpstream(t, UpstreamConfig{Hold: 50 * time.Millisecond})
	end := make(chan struct{})
	go func() {
		for u.Stats().Served <= 3 { // a client has its answer: it has asked again
			time.Sleep(time.Millisecond)
		}
		close(end)
	}()
	res, err := Run(t.Context(), LoadConfig{Targets: []Target{{URL: url, Clients: 3}}, Duration: time.Hour, Stop: end})
	if s := u.Stats(); err != nil || res.Overall.Access.Count == 0 || s.Aborted > 0 {
		t.Errorf("%v, %d answers, %+v", err, res.Overall.Access.Count, s)
	}
}

// TestLoadCancel: the end of the context ends the run, at once.
func TestLoadCancel(t *testing.T) {
	u, url := startUpstream(t, UpstreamConfig{Hold: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for u.Stats().InFlight < 3 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := Run(ctx, LoadConfig{Targets: []Target{{URL: url, Clients: 3}}, Duration: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLoadValidate(t *testing.T) {
	for _, cfg := range []LoadConfig{
		{},
		{Duration: time.Second, Targets: []Target{{URL: "https://x"}}},
		{Duration: time.Second, Targets: []Target{{URL: "http://x", Clients: -1}}},
		{Duration: 0, Targets: []Target{{URL: "http://x"}}},
		{Duration: time.Second, Warmup: -1, Targets: []Target{{URL: "http://x"}}},
	} {
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestUpstreamValidate(t *testing.T) {
	for _, cfg := range []UpstreamConfig{{Hold: -1}, {SCV: -1}, {SCV: 4}, {K: -1}, {BodyBytes: -1}} {
		if _, err := NewUpstream(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// TestUpstreamHold: 200,000 exponential times have the mean and the SCV, and a seed decides them.
func TestUpstreamHold(t *testing.T) {
	const n, mean = 200_000, 40 * time.Millisecond
	u, _ := startUpstream(t, UpstreamConfig{Hold: mean, SCV: 1, Seed: 7})
	again, _ := startUpstream(t, UpstreamConfig{Hold: mean, SCV: 1, Seed: 7})
	var sum, squares float64
	for range n {
		d := u.hold()
		if d < 0 || d != again.hold() {
			t.Fatalf("%v, and another with the same seed", d)
		}
		x := float64(d) / float64(mean)
		sum += x
		squares += x * x
	}
	if m := sum / n; m < 0.99 || m > 1.01 || squares/n-m*m < 0.96 || squares/n-m*m > 1.04 {
		t.Errorf("mean %v of %v, variance %v", m, mean, squares/n-m*m)
	}
}

// TestUpstreamAnswer: it is whole, says how long it was held, and counts until its last byte.
func TestUpstreamAnswer(t *testing.T) {
	u, url := startUpstream(t, UpstreamConfig{Hold: 20 * time.Millisecond, BodyBytes: 10})
	defer http.DefaultClient.CloseIdleConnections()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if held, bad := strconv.ParseFloat(res.Header.Get(HoldHeader), 64); err != nil || string(b) != "ok\nok\nok\no" || bad != nil || held < 20 {
		t.Errorf("body %q, held for %v, %v, %v", b, held, err, bad)
	}
	if s := u.Stats(); s.InFlight != 0 || s.Served != 1 {
		t.Errorf("after the last byte: %+v", s)
	}
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
	want := Times{Count: 1000, Mean: 500, P50: 500, P99: 990, Max: 1000}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Spread() != 500 {
		t.Errorf("spread %v", got.Spread())
	}
	if odd := summarize([]time.Duration{3, 1, 2}); odd.P50 != 2 || odd.P99 != 3 {
		t.Errorf("three samples: %+v", odd)
	}
	if one := summarize([]time.Duration{7}); one.P50 != 7 || one.P99 != 7 {
		t.Errorf("one sample: %+v", one)
	}
	if none := summarize(nil); none != (Times{}) {
		t.Errorf("no sample: %+v", none)
	}
}
