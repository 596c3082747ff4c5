package browser

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/prometheus"
)

// TestDashboardAtFaults draws the dashboard in each of several faults: the first row says what is
// wrong.
func TestDashboardAtFaults(t *testing.T) {
	cluster.OnlySoak(t, "TestDashboard")
	chrome, script := browser(t), bundle(t)
	var mode atomic.Value
	mode.Store("")
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		length := 50 * time.Millisecond
		switch mode.Load() {
		case "500":
			w.WriteHeader(http.StatusInternalServerError)
		case "silent":
			length = time.Hour
		}
		select {
		case <-time.After(length):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(upstream.Close)
	c := cluster.Start(t, cluster.Options{K: 6, Upstream: upstream.URL, Durable: true, Lease: 6 * time.Second})
	p := prometheus.StartPrometheus(t, c.Gateways, prometheus.Classic, prometheus.Hasten(t, "rules.yaml"), prometheus.Hasten(t, "alerts.yaml"))
	cluster.StartLoad(t, c.Gateways, cluster.LoadOptions{Clients: 4})
	d := &dashboard{chrome: chrome, server: serveDashboard(t, p, script), began: time.Now()}
	time.Sleep(20 * time.Second)
	d.drawUntil(t, "well", "Firing alerts", "0")
	for _, f := range []struct {
		name, mode  string
		panel, says string
	}{
		{"5xx", "500", "What is wrong", "KgateUpstreamFailing"},
		{"silent", "silent", "What is wrong", "KgateUpstreamSilent"},
		{"k", "k", "What is wrong", "KgateKUnlikeConfiguration"},
		{"refused", "refused", "What is wrong", "KgateUpstreamDown"}, // the last one: it does not come back
	} {
		d.began = time.Now()
		mode.Store(f.mode)
		switch f.mode {
		case "k":
			setK(t, c.Gateways[0], 3)
		case "refused":
			upstream.CloseClientConnections()
			upstream.Close()
		}
		time.Sleep(20 * time.Second)
		d.drawUntil(t, f.name, f.panel, f.says)
		if mode.Store(""); f.mode == "k" {
			setK(t, c.Gateways[0], 6)
		}
		time.Sleep(15 * time.Second)
	}
}

func setK(t *testing.T, g *cluster.Gateway, k int) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, "http://"+g.Admin+"/api/v1/pools/"+cluster.PoolName, bytes.NewReader(fmt.Appendf(nil, `{"k": %d}`, k)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
}
