package prometheus

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/demo"
	"github.com/kgate/kgate/test/cluster"
)

// k of the pool that the load is for. The others are for the faults.
const k = 6

// Fleet is three gateways, their upstreams, and the Prometheus that scrapes them.
type Fleet struct {
	*cluster.Cluster
	Prometheus *Prometheus
	// Upstream of the first pool.
	Upstream *demo.Upstream

	began time.Time
	away  string // address of pool away's upstream
}

// StartFleet starts all of it but the upstream of pool away. It ends with the test.
func StartFleet(t *testing.T) *Fleet {
	t.Helper()
	tool(t, "prometheus") // before anything is built
	f := &Fleet{away: cluster.ReservePort(t)}
	var url string
	f.Upstream, url = cluster.ServeUpstream(t, demo.UpstreamConfig{
		Hold: demo.Distribution{Mean: 200 * time.Millisecond, SCV: 1}, Seed: 6, K: k,
	})
	patient := serve(t, "127.0.0.1:0")
	f.Cluster = cluster.Start(t, cluster.Options{
		K: k, Upstream: url, Durable: true, // gateways come back at their addresses
		Pools: []cluster.Pool{
			{Name: "refusing", K: 1, Upstream: patient, Settings: "queue: {timeout: 300ms, limit: 2}"},
			{Name: "bursty", K: 1, Upstream: patient},
			{Name: "away", K: 2, Upstream: "http://" + f.away},
			{Name: "kept", K: 1, Upstream: patient, Settings: "reclaim: hold, hold: {max: 6s}"},
		},
	})
	f.began = time.Now()
	f.Prometheus = StartPrometheus(t, f.Gateways, Hasten(t, "rules.yaml"), Hasten(t, "alerts.yaml"))
	return f
}

// serve serves an upstream that holds requests as long as they say, in the
// parameter hold. It ends with the test.
func serve(t *testing.T, addr string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold, err := time.ParseDuration(r.FormValue("hold"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(hold):
		case <-r.Context().Done():
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Close
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "http://" + l.Addr().String()
}

// Ask begins to ask a gateway and returns when a slot of the pool is in use, or
// one more request waits for one, anywhere in the fleet. end breaks it off.
func (f *Fleet) Ask(t *testing.T, gateway int, pool, hold string) (answered <-chan int, end func()) {
	t.Helper()
	before, err := f.busy(t, pool)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	status := make(chan int, 1)
	go func() {
		defer close(status)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Gateways[gateway].URL()+pool+"/?hold="+hold, http.NoBody)
		if err != nil {
			return
		}
		res, err := client60.Do(req)
		if err != nil {
			return // broken off
		}
		_ = res.Body.Close()
		status <- res.StatusCode
	}()
	end = func() { cancel(); <-status }
	t.Cleanup(end)
	await(t, 20*time.Second, func() error {
		now, err := f.busy(t, pool)
		if err == nil && now == before {
			err = fmt.Errorf("the request for pool %s has not come in", pool)
		}
		return err
	})
	return status, end
}

var client60 = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// busy returns how many requests hold a slot of a pool or wait for one.
func (f *Fleet) busy(t *testing.T, pool string) (float64, error) {
	m, err := f.Metrics(t.Context())
	label := fmt.Sprintf("pool=%q", pool)
	return m.Sum("kgate_in_flight", label) + m.Sum("kgate_waiting", label), err
}

// awaitFiring waits until each of the alerts has fired since a time. An alert is
// written as name or name/pool.
func (f *Fleet) awaitFiring(t *testing.T, since time.Time, want ...string) {
	t.Helper()
	await(t, 40*time.Second, func() error {
		fired, err := f.fired(t, since)
		for _, alert := range want {
			if err == nil && !slices.Contains(fired, alert) {
				err = fmt.Errorf("%s does not fire; %v do", alert, fired)
			}
		}
		return err
	})
}

// awaitQuiet waits until no alert fires, and complains of those that have fired
// since a time and were neither to fire nor may.
func (f *Fleet) awaitQuiet(t *testing.T, since time.Time, want ...string) {
	t.Helper()
	await(t, 40*time.Second, func() error {
		firing, err := f.Prometheus.Firing(t.Context())
		if err == nil && len(firing) > 0 {
			err = fmt.Errorf("still firing: %v", firing)
		}
		return err
	})
	fired, err := f.fired(t, since)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range fired {
		if !slices.Contains(want, alert) {
			t.Errorf("%s has fired, for no reason", alert)
		}
	}
}

// fired returns which alerts have fired since a time.
func (f *Fleet) fired(t *testing.T, since time.Time) ([]string, error) {
	series, err := f.Prometheus.Range(t.Context(), `ALERTS{alertstate="firing"}`, since)
	var all []string
	for _, s := range series {
		name := strings.TrimSuffix(s.Labels["alertname"]+"/"+s.Labels["pool"], "/")
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, err
}
