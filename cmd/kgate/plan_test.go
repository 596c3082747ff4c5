package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kgate/kgate/lab/workload"
	"github.com/kgate/kgate/telemetry/prom"
)

// planRun runs kgate plan and returns what it prints.
func planRun(t *testing.T, want int, args ...string) (out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := run(append([]string{"plan"}, args...), streams{&o, &e}); code != want {
		t.Fatalf("kgate plan %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

func TestPlan(t *testing.T) {
	load := []string{"--gateways", "4", "--rate", "1200/min", "--hold-mean", "200ms", "--entries", "2000", "--seeds", "2"}
	out, _ := planRun(t, exitOK, append(load, "--k", "6")...)
	for _, want := range []string{"load 0.667", "late", "early", "static split   grows without end: a gateway is overloaded with its 1 of the slots"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	out, _ = planRun(t, exitOK, append(load, "--k", "6", "--json")...)
	var told planned
	if err := json.Unmarshal([]byte(out), &told); err != nil || told.K != 6 || len(told.Waits) != 3 || !strings.Contains(out, `"unstable": "grows without end: a gateway is overloaded`) || strings.Count(out, `"p99": `) != 2 {
		t.Errorf("%v in:\n%s", err, out)
	}
	out, _ = planRun(t, exitOK, append(load, "--p99", "1s")...)
	if !strings.Contains(out, "is the smallest with which 99 % of the requests wait at most 1s") {
		t.Errorf("no k is found:\n%s", out)
	}
	out, _ = planRun(t, exitOK, "--k", "16", "--gateways", "5", "--rate", "80/s", "--hold-mean", "150ms", "--latency", "constant:40ms", "--entries", "20000", "--seeds", "3")
	for _, want := range []string{"late           grows without end: slots do not get", "What helps: early binding (binding: early), fewer gateways, a larger k", "16 x 40ms, is more than a hold of 150ms"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	if strings.Contains(out, "early          grows") {
		t.Errorf("early binding grows:\n%s", out)
	}
	out, _ = planRun(t, exitOK, append(load, "--upstreams", "2,2,4")...)
	for _, want := range []string{"k = 8 over", "load 0.5;", "\nlate ", "\nwithout one of k 2 ", "\nwithout one of k 4   grows without end: 4 slots are needed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	if out, _ = planRun(t, exitOK, append(load, "--upstreams", "6")...); !strings.Contains(out, "without one of k 6   none: all are refused") {
		t.Errorf("one upstream:\n%s", out)
	}
	// More gateways than slots: the first requests have to wait for messages.
	planRun(t, exitFailure, "--gateways", "100", "--rate", "10/s", "--hold-mean", "20ms", "--entries", "300", "--seeds", "2", "--p99", "1ns")
	for _, wrong := range [][]string{load, append(load, "--k", "-1"), append(load, "--k", "3", "--rate", "0/s"), append(load, "--k", "3", "--upstreams", "2"), append(load, "--upstreams", "2,0"), append(load, "--k", "3", "--rate", "5/fortnight")} {
		if _, err := planRun(t, exitUsage, wrong...); !strings.Contains(err, "kgate") {
			t.Errorf("%v: %s", wrong, err)
		}
	}
}

// The mean and the SCV from a gateway's metrics are close to the holds': within 2 % and a tenth by the
// narrow buckets of a URL, and within a quarter by the wide buckets of a stored text.
func TestPlanFromMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prom.New(reg, prom.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer server.Close()
	if _, err := readHolds(t.Context(), []string{server.URL}, ""); err == nil || !strings.Contains(err.Error(), "no request has ended") {
		t.Errorf("without holds: %v", err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	want := map[string]float64{"steady": 0, "even": .25, "usual": 1, "heavy": 4}
	truth := make(map[string]holds)
	for name, scv := range want {
		pool := m.AddPool(name)
		var sum, squares float64
		const n = 20_000
		for range n {
			hold := workload.SCV(300*time.Millisecond, scv).Draw(r)
			pool.Hold(hold)
			sum += hold.Seconds()
			squares += hold.Seconds() * hold.Seconds()
		}
		truth[name] = holds{mean: time.Duration(sum / n * float64(time.Second)), scv: squares*n/(sum*sum) - 1}
	}
	file := filepath.Join(t.TempDir(), "metrics.txt")
	text := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(text, httptest.NewRequest("GET", "/metrics", nil))
	if err := os.WriteFile(file, text.Body.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for source, within := range map[string]float64{server.URL: .1, file: .25} {
		for name := range want {
			h, err := readHolds(t.Context(), []string{source}, name)
			if err != nil {
				t.Fatal(err)
			}
			if is := truth[name]; math.Abs(h.mean.Seconds()/is.mean.Seconds()-1) > .02 || math.Abs(h.scv-is.scv) > max(within*is.scv, .1) {
				t.Errorf("%s from %s: mean %v, SCV %.2f; held %v, %.2f", name, source, h.mean, h.scv, is.mean, is.scv)
			}
		}
	}
	out, _ := planRun(t, exitOK, "--k", "16", "--rate", "40/s", "--from-metrics", server.URL, "--from-metrics", file, "--pool", "heavy", "--entries", "2000", "--seeds", "2")
	if !strings.Contains(out, fmt.Sprintf("40000 requests of pool heavy were held %.3g s on average", truth["heavy"].mean.Seconds())) {
		t.Errorf("what it read is not printed:\n%s", out)
	}
	if _, err := planRun(t, exitFailure, "--k", "16", "--rate", "40/s", "--from-metrics", file); !strings.Contains(err, "give --pool, one of even, heavy, steady, usual") {
		t.Errorf("several pools: %s", err)
	}
	planRun(t, exitFailure, "--k", "16", "--rate", "40/s", "--from-metrics", file, "--pool", "none")
	planRun(t, exitUsage, "--k", "16", "--rate", "40/s", "--from-metrics", file, "--hold-mean", "1s")
	planRun(t, exitUsage, "--k", "16", "--rate", "40/s")
}
