package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	pauseK      = 6 // of the pool with short holds
	pauseLongK  = 8 // of those with long ones
	pauseLonger = 3 // clients for long holds at each of three gateways: each has some in flight
)

// pauseRun stops one of three gateways for a while. Three pools show what that
// does: one with holds far shorter than the lease, one with holds that outlast
// the pause, and one like it that takes slots back only after hold.max.
type pauseRun struct {
	stop, lease time.Duration

	c                      *Cluster
	short, long, patiently *Judge
	fence                  Fence
	wake                   wake
}

func (r *pauseRun) start(t *testing.T) {
	t.Helper()
	// By far: none ends by itself while the gateway wakes up.
	outlasts := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { hold(req, r.stop+5*r.lease) })
	judge := func(h http.Handler) (*Judge, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		j, _ := NewJudgeAt(t, &Tap{Listener: l, Read: r.wake.read}, h)
		return j, "http://" + l.Addr().String()
	}
	var shortURL, longURL, patientURL string
	r.short, shortURL = judge(r.fence.Around(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { hold(req, 60*time.Millisecond) })))
	r.long, longURL = judge(outlasts)
	r.patiently, patientURL = judge(outlasts)
	r.short.Keep()
	r.c = Start(t, Options{K: pauseK, Upstream: shortURL, Lease: r.lease, Pools: []Pool{
		{Name: "long", K: pauseLongK, Upstream: longURL},
		{Name: "patient", K: pauseLongK, Upstream: patientURL, Settings: fmt.Sprintf("reclaim: hold, hold: {max: %v}", r.stop+4*r.lease)},
	}})
	r.c.Causes("upstream is silent")
}

// wake watches what a gateway sends after it was stopped.
type wake struct {
	mu     sync.Mutex
	victim []byte            // its header line
	open   []net.Conn        // its requests when it was stopped
	owned  map[net.Conn]bool // connections on which it ever sent a request
	woken  time.Time         // zero: not yet
	first  time.Time         // byte of a new request after that
	wrong  []string
}

// read is called with all that upstreams read.
func (w *wake) read(conn net.Conn, p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.victim != nil && bytes.Contains(p, w.victim) {
		w.owned[conn] = true
	}
	if w.woken.IsZero() || !w.owned[conn] {
		return
	}
	if slices.Contains(w.open, conn) {
		w.wrong = append(w.wrong, fmt.Sprintf("more of an old request: %.40q", p))
		return
	}
	if w.first.IsZero() {
		w.first = time.Now()
	}
	if slices.Contains(closedByPeer(w.open...), false) {
		w.wrong = append(w.wrong, "a new request while an old one's connection is open")
	}
}

// watch begins: from now on it is known which connections are the victim's.
func (w *wake) watch(victim string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.victim, w.owned = []byte(fromHeader+": "+victim+"\r\n"), make(map[net.Conn]bool)
}

// TestPause stops a gateway for longer than its lease and lets it go on.
func TestPause(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	lease := Lease(3 * time.Second)
	r := &pauseRun{stop: lease*11/10 + 3*time.Second, lease: lease}
	r.start(t)
	victim := r.c.Gateways[2]
	r.wake.watch(victim.Name)
	load := StartLoad(t, r.c.Gateways, LoadOptions{Clients: 8})
	for _, pool := range []string{"/long/", "/patient/"} {
		StartLoad(t, r.c.Gateways, LoadOptions{Clients: pauseLonger, Path: pool, Patience: time.Minute})
	}
	Span(t, time.Second)

	if err := victim.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	t.Cleanup(func() { _ = victim.Signal(syscall.SIGCONT) }) // so that it ends
	open, openPatient := r.long.InFlight(victim.Name), r.patiently.InFlight(victim.Name)
	for _, pool := range []string{"/long/", "/patient/"} { // others would fill what it has left
		StartLoad(t, r.c.Gateways[:2], LoadOptions{Clients: pauseLongK, Path: pool, Patience: time.Minute})
	}
	Span(t, r.stop)
	gap := Gap(r.short.Since(stopped), stopped, time.Now())
	r.resume(t, victim, load)
	_, short, _ := r.short.Counts()
	_, long, _ := r.long.Counts()
	_, patient, _ := r.patiently.Counts()
	t.Logf("stopped for %v with a lease of %v; no request for %v", r.stop, r.lease, gap.Round(time.Millisecond))
	t.Logf("short holds: most in flight %d, k is %d; long holds: %d, k is %d and the stopped gateway had %d open; reclaim: hold: %d, it had %d open",
		short, pauseK, long, pauseLongK, open, patient, openPatient)
	if open < pauseLongK-2*pauseLonger || openPatient < pauseLongK-2*pauseLonger {
		t.Errorf("the stopped gateway had only %d and %d open", open, openPatient)
	}
	if short != pauseK || patient != pauseLongK || long > pauseLongK+open {
		t.Error("more in flight than promised")
	}
	if long <= pauseLongK {
		t.Error("the stopped gateway's slots have not come back")
	}
	r.checkFences(t)
}

// resume wakes the gateway up and waits until it serves again.
func (r *pauseRun) resume(t *testing.T, victim *Gateway, load *Load) {
	t.Helper()
	w := &r.wake
	w.mu.Lock()
	w.open = append(r.long.conns(victim.Name), r.patiently.conns(victim.Name)...)
	w.woken = time.Now()
	w.mu.Unlock()
	if err := victim.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := Await(ctx, func() error {
		for _, a := range load.Since(w.woken) {
			if a.Gateway == victim.Name && a.Result == OK && a.Sent.After(w.woken) {
				return nil
			}
		}
		return errors.New("the gateway that was stopped serves nobody")
	})
	if err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d connections were open when it woke up; its first request came %v later", len(w.open), w.first.Sub(w.woken).Round(time.Millisecond))
	if len(w.wrong) > 0 {
		t.Errorf("after it woke up: %s", strings.Join(w.wrong[:min(len(w.wrong), 5)], "; "))
	}
}

// checkFences holds that the gateway that woke up had no fence of the past. One
// that has not heard of a new epoch yet may be late by a moment; the guard
// refuses that too.
func (r *pauseRun) checkFences(t *testing.T) {
	t.Helper()
	old, errs := r.fence.Refused()
	for _, err := range errs {
		t.Error(err)
	}
	slipped := 0
	for _, o := range old {
		if o.At.After(r.wake.woken) {
			slipped++
		}
	}
	t.Logf("fences: %d requests of an older epoch, %d of them after it woke up", len(old), slipped)
	if slipped > 0 {
		t.Errorf("%d requests had an old epoch after the pause", slipped)
	}
}
