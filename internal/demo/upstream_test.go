package demo

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestUpstream: 1 in flight for 1 s, 3 for 2 s, 2 for 1 s, 1 for 1 s, none for 1 s; the second leaves before its answer.
func TestUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &Upstream{Hold: 4 * time.Second}
		began := u.Stats()
		var clients sync.WaitGroup
		var last *httptest.ResponseRecorder
		for _, patience := range []time.Duration{time.Hour, 2 * time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			w := httptest.NewRecorder()
			clients.Go(func() { u.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil)) })
			if last == nil {
				time.Sleep(time.Second)
			}
			last = w
		}
		clients.Wait()
		time.Sleep(time.Second)
		got := u.Stats()
		if busy := got.Busy(began, 3); busy != (1+2*3+2+1)/6./3 {
			t.Errorf("busy %v", busy)
		}
		if last.Body.String() != "ok\n" || last.Header().Get(HoldHeader) != "4000.000" {
			t.Errorf("%q, held for %s ms", last.Body, last.Header().Get(HoldHeader))
		}
		var told Stats // at another process
		w := httptest.NewRecorder()
		u.ServeHTTP(w, httptest.NewRequest("GET", "/stats", nil))
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || told != (Stats{Max: 3, Served: 2, Aborted: 1}) {
			t.Errorf("%v, %+v", err, told)
		}
	})
}

// TestUpstreamHold: exponential times have the mean and the SCV.
func TestUpstreamHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, mean = 50_000, 40 * time.Millisecond
		u, r := &Upstream{Hold: mean, SCV: 1}, httptest.NewRequest("GET", "/", nil)
		var sum, squares float64
		for range n {
			began := time.Now()
			u.ServeHTTP(httptest.NewRecorder(), r)
			x := float64(time.Since(began)) / float64(mean)
			sum += x
			squares += x * x
		}
		if m := sum / n; m < 0.96 || m > 1.04 || squares/n-m*m < 0.9 || squares/n-m*m > 1.1 {
			t.Errorf("mean %v of %v, variance %v", m, mean, squares/n-m*m)
		}
	})
}
