package prometheus

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
)

// k of the pool that the load is for. The others are for the faults.
const k = 6

// Fleet is three gateways, their upstreams, and the Prometheus that scrapes them.
type Fleet struct {
	*cluster.Cluster
	Prometheus *Prometheus
	// Native scrapes the same gateways, for native histograms, once a test has started it.
	Native *Prometheus
	// Upstream of the first pool.
	Upstream *demo.Upstream

	began time.Time
	away  *site // upstream of the pools away and checked
}

// StartFleet starts all of it. It ends with the test.
func StartFleet(t *testing.T) *Fleet {
	t.Helper()
	cluster.Need(t, "prometheus", "prometheus") // before anything is built
	f := &Fleet{away: newSite(t)}
	var url string
	f.Upstream, url = cluster.ServeUpstream(t, &demo.Upstream{Hold: 200 * time.Millisecond, SCV: 1})
	site := newSite(t).URL()
	f.Cluster = cluster.Start(t, cluster.Options{
		K: k, Upstream: url, Durable: true, // gateways come back at their addresses
		Lease: 4 * time.Second, // several are waited for
		Pools: []cluster.Pool{
			{Name: "refusing", K: 1, Upstream: site, Settings: "queue: {timeout: 300ms, limit: 2}"},
			{Name: "failing", K: 1, Upstream: site},
			{Name: "silent", K: 1, Upstream: newSite(t).URL()},
			{Name: "ticketed", K: 1, Upstream: site, Settings: "queue: {timeout: 3m}"}, // who waits does so until the alert
			{Name: "changed", K: 2, Upstream: site},
			{Name: "away", K: 2, Upstream: f.away.URL(), Settings: "health: {interval: 500ms}"},
			{Name: "checked", K: 2, Upstream: f.away.URL(), Settings: "health: {path: /?hold=0s, interval: 500ms}"},
			{Name: "kept", K: 1, Upstream: site, Settings: "reclaim: hold, hold: {max: 30s}"},
		},
	})
	f.began = time.Now()
	f.Prometheus = StartPrometheus(t, f.Gateways, Classic, Hasten(t, "rules.yaml"), Hasten(t, "alerts.yaml"))
	return f
}

// Ask begins to ask a gateway and returns when a slot of the pool is in use, or
// one more request waits for one, anywhere in the fleet. end breaks it off.
func (f *Fleet) Ask(t *testing.T, gateway int, pool, hold string) (answered <-chan int, end func()) {
	t.Helper()
	var before float64
	await(t, func() (err error) {
		before, err = f.busy(t, pool)
		return err
	})
	status := make(chan int, 1)
	end = ask(t, http.MethodGet, f.Gateways[gateway].URL()+pool+"/?hold="+hold, "", status)
	await(t, func() error {
		now, err := f.busy(t, pool)
		if err == nil && now == before {
			err = fmt.Errorf("the request for pool %s has not come in", pool)
		}
		return err
	})
	return status, end
}

// AskForTicket asks a gateway for a ticket that lives for some seconds.
func (f *Fleet) AskForTicket(t *testing.T, g *cluster.Gateway, pool string) (answered <-chan int, end func()) {
	t.Helper()
	status := make(chan int, 1)
	body := fmt.Sprintf(`{"pool": %q, "ttl": "5s"}`, pool)
	return status, ask(t, http.MethodPost, "http://"+g.Admin+"/.kgate/tickets", body, status)
}

// ask begins a request, which ends with the test at the latest. The status of the
// answer, if there is one, goes to status, which is closed at the end.
func ask(t *testing.T, method, url, body string, status chan<- int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(status)
		res, err := patient.Do(req)
		if err != nil {
			return // broken off
		}
		_ = res.Body.Close()
		status <- res.StatusCode
	}()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}

// patient waits for an answer as long as the test likes. Its connections are not
// kept: tests count goroutines.
var patient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// busy returns how many requests hold a slot of a pool or wait for one.
func (f *Fleet) busy(t *testing.T, pool string) (float64, error) {
	m, err := f.Metrics(t.Context())
	label := fmt.Sprintf("pool=%q", pool)
	return m.Sum("kgate_in_flight", label) + m.Sum("kgate_waiting", label), err
}

// awaitFiring waits until each of the alerts has fired in p since a time. An alert is
// written as name or name/pool.
func (f *Fleet) awaitFiring(t *testing.T, p *Prometheus, since time.Time, want ...string) {
	t.Helper()
	await(t, func() error {
		fired, err := fired(t, p, since)
		for _, alert := range want {
			if err == nil && !slices.Contains(fired, alert) {
				err = fmt.Errorf("%s does not fire; %v do", alert, fired)
			}
		}
		return err
	})
}

// never are the alerts that nothing here may cause. Others come early, late or from a busy
// machine, where minutes are seconds: only in the long run they may not.
var never = []string{"KgateStateDiffers", "KgateTokenAuditFailed", "KgateCertificateExpiring", "KgateReloadFailed"}

// awaitQuiet waits until no alert fires, and complains of those that have fired
// since a time and were neither to fire nor may.
func (f *Fleet) awaitQuiet(t *testing.T, since time.Time, want ...string) {
	t.Helper()
	await(t, func() error {
		firing, err := f.Prometheus.Firing(t.Context())
		if err == nil && len(firing) > 0 {
			err = fmt.Errorf("still firing: %v", firing)
		}
		return err
	})
	fired, err := fired(t, f.Prometheus, since)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range fired {
		if name, _, _ := strings.Cut(alert, "/"); slices.Contains(never, name) || cluster.Soak() && !slices.Contains(want, alert) {
			t.Errorf("%s has fired, for no reason", alert)
		} else if !slices.Contains(want, alert) {
			t.Logf("%s has fired, too", alert)
		}
	}
}

// fired returns which alerts have fired in p since a time.
func fired(t *testing.T, p *Prometheus, since time.Time) ([]string, error) {
	series, err := p.Range(t.Context(), `ALERTS{alertstate="firing"}`, since)
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
