package core_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/lab/hosts"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/sim"
)

const ms = time.Millisecond

// world is hosts that run nothing but their cores.
type world struct {
	*hosts.World
	t     *testing.T
	hosts []*hosts.Host
	lease time.Duration
	do    []func() // by argument of a timer
	// number of the newest view, when it was new, and the longest time without a new one.
	number      uint64
	viewed, gap time.Duration
	calm        bool // nothing that was planned happens any more
}

// newWorld returns one in which no process runs. A message takes delay, a fifth more or less.
func newWorld(t *testing.T, seed uint64, n int, lease, delay time.Duration, trace *strings.Builder) *world {
	w := &world{t: t, lease: lease}
	cfg := hosts.Config{
		Seed: seed, Hosts: n, Lease: lease, Network: network.Uniform{Low: delay * 4 / 5, High: delay * 6 / 5},
		App: &hosts.Idle{Do: func(arg uint64) { w.do[arg]() }},
	}
	if trace != nil {
		cfg.Trace = trace
	}
	w.World = hosts.New(cfg)
	for i := range n {
		w.hosts = append(w.hosts, w.Host(i))
	}
	return w
}

// started returns a world whose gateways have founded a cluster, and all stand.
func started(t *testing.T, seed uint64, n int, lease time.Duration) *world {
	t.Helper()
	w := newWorld(t, seed, n, lease, ms, nil)
	for _, h := range w.hosts {
		w.after(w.random(300*ms), h.Start)
	}
	w.until(20*time.Second, func() bool { return w.whole(w.hosts...) })
	return w
}

// after has something happen in a while.
func (w *world) after(d time.Duration, do func()) {
	w.do = append(w.do, do)
	w.After(sim.World, d, sim.Timer{Arg: uint64(len(w.do) - 1)})
}

func (w *world) random(d time.Duration) time.Duration {
	return time.Duration(w.Rand().Int64N(int64(d)))
}

// step lets something happen, up to an instant.
func (w *world) step(end time.Duration) bool {
	w.t.Helper()
	if !w.Step(end) {
		return false
	}
	if v := w.View().Number; v != w.number {
		w.gap = max(w.gap, w.Now()-w.viewed)
		w.number, w.viewed = v, w.Now()
	}
	if err := w.Err(); err != nil {
		w.t.Fatalf("at %v: %v%s", w.Now(), err, w.state())
	}
	return true
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	for end := w.Now() + d; w.step(end); {
	}
}

// until waits until something is so, and fails if that takes too long.
func (w *world) until(within time.Duration, is func() bool) {
	w.t.Helper()
	for end := w.Now() + within; !is(); {
		if !w.step(end) {
			w.t.Fatalf("at %v: not in order after %v%s", w.Now(), within, w.state())
		}
	}
}

// whole reports that these hosts, and no others, stand in the newest view.
func (w *world) whole(hosts ...*hosts.Host) bool {
	for _, h := range hosts {
		if !h.Stands() || h.Core.View().Number != w.View().Number || len(h.Core.View().Members) != len(hosts) {
			return false
		}
	}
	return true
}

// stand counts the hosts that do.
func (w *world) stand() (n int) {
	for _, h := range w.hosts {
		if h.Stands() {
			n++
		}
	}
	return n
}

// other returns a host that is not h and runs.
func (w *world) other(h *hosts.Host) *hosts.Host {
	for {
		if o := w.hosts[w.Rand().IntN(len(w.hosts))]; o != h && o.Core != nil {
			return o
		}
	}
}

// apart does something to both ways between two hosts: [hosts.World.Cut], [hosts.World.Heal].
func apart(a, b *hosts.Host, do func(from, to int)) { do(a.Index, b.Index); do(b.Index, a.Index) }

func setK(k int) views.Command { return views.Command{SetK: &views.SetK{Name: "p", K: k}} }

func (w *world) define() {
	w.hosts[0].Propose(views.Command{Define: &views.Define{Name: "p", K: 1, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}})
}

// keepProposing has all hosts set k all the time.
func (w *world) keepProposing(every time.Duration) {
	k := 1
	var next func()
	next = func() {
		k = k%100 + 1
		for _, h := range w.hosts {
			if h.Works() && h.Open() < 5 {
				h.Propose(setK(k))
			}
		}
		w.after(every, next)
	}
	next()
}

// state says who is where.
func (w *world) state() string {
	var b strings.Builder
	for _, h := range w.hosts {
		if h.Core == nil {
			fmt.Fprintf(&b, "\n%s: down", h.Name)
			continue
		}
		applied, _ := h.Core.Applied()
		fmt.Fprintf(&b, "\n%s: process %x, term %d, leader %x, leads %t, view %d, stands %t, applied %v, voters %x and %x, problem %v",
			h.Name, uint64(h.Core.ID()), h.Core.Term(), uint64(h.Core.Leader()), h.Core.Leads(), h.Core.View().Number, h.Stands(), applied,
			h.Core.Voters(), h.Core.Outgoing(), h.Core.Problem())
	}
	return b.String()
}
