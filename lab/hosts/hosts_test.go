package hosts_test

import (
	"os"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/hosts"
	"github.com/kgate/kgate/lab/network"
)

func whole(w *hosts.World, n int) bool {
	for i := range n {
		if h := w.Host(i); !h.Stands() || len(h.Core.View().Members) != n {
			return false
		}
	}
	return true
}

func TestFounding(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 9, 32} {
		cfg := hosts.Config{Seed: 1, Hosts: n, Lease: 3 * time.Second, Network: network.Constant(time.Millisecond), App: &hosts.Idle{}}
		if os.Getenv("TRACE") != "" {
			cfg.Trace = os.Stdout
		}
		w := hosts.New(cfg)
		for i := range n {
			w.Host(i).Start()
		}
		began := time.Now()
		for w.Step(20*time.Second) && w.Err() == nil && !whole(w, n) {
		}
		at, events := w.Now(), w.Events()
		took := time.Since(began)
		if w.Err() != nil || !whole(w, n) {
			t.Errorf("%d: %v", n, w.Err())
		}
		began = time.Now()
		for w.Step(at+30*time.Second) && w.Err() == nil {
		}
		t.Logf("%d hosts: whole after %v, %d events, %v; 30 s of rest: %d events, %v", n, at, events, took, w.Events()-events, time.Since(began))
	}
}
