package hosts_test

import (
	"os"
	"slices"
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

// numbers sends numbers over a link; the first is a long message.
type numbers struct {
	hosts.Idle
	got []int
}

func (n *numbers) Receive(_ *hosts.Host, _ int, m any) { n.got = append(n.got, m.(int)) }

func (n *numbers) Long(m any) bool { return m == 1 }

// What was lost on a path for short packets only comes before what was sent after it.
func TestInOrderWhenWider(t *testing.T) {
	app := &numbers{}
	w := hosts.New(hosts.Config{Seed: 1, Hosts: 2, Lease: 3 * time.Second, Network: network.Constant(time.Millisecond), App: app})
	run := func(d time.Duration) {
		for end := w.Now() + d; w.Step(end); {
		}
	}
	a, b := w.Host(0), w.Host(1)
	a.Start()
	b.Start()
	run(5 * time.Second)
	a.SetPeers(1, []hosts.Peer{{Node: 2, Host: 1}})
	b.SetPeers(2, []hosts.Peer{{Node: 1, Host: 0}})
	run(time.Second)
	w.Narrow(0, 1)
	a.Send(2, 1)
	run(10 * time.Millisecond)
	a.Send(2, 2)
	w.Widen(0, 1)
	a.Send(2, 3)
	run(time.Second)
	if !slices.Equal(app.got, []int{1, 2, 3}) {
		t.Errorf("%v", app.got)
	}
}
