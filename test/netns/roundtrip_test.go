package netns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/clusterkey"
	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/test/cluster"
)

// TestSlowLeader has all packets of the leader come a second late, both ways: the
// others elect another one, and keep their leases.
func TestSlowLeader(t *testing.T) {
	cluster.OnlySoak(t, "internal/membership/core's TestOthersKeepTheirLeases has the same without processes")
	t.Parallel()
	const lease = 3 * time.Second
	w := newWorldIn(t, NewDelayed(t, size, time.Millisecond), lease)
	cluster.Span(t, window)
	roles, err := w.cluster.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	w.Slow(roles.Leader, time.Second)
	cluster.Span(t, lease*10/3)
	w.judge.AwaitInFlight(t, "the leader is slow", time.Now(), k, 2*lease)
	t.Log("roles:", w.describe(roles))
	timing.Within(t, "no request while the leader is slow", cluster.Gap(w.judge.Since(since), since, time.Now()), 2*lease)
	cluster.KeptLeases(t, w.cluster, w.cluster.Gateways[roles.Leader])
	w.Slow(roles.Leader, 0) // so that it ends soon
	w.checkBound(t)
}

// TestSlowGateways has round trips to each gateway in turn take 1.8 s for a while: the line stands still once.
func TestSlowGateways(t *testing.T) {
	cluster.OnlySoak(t, "lab/cluster's TestSlowGateway has the same without processes")
	t.Parallel()
	const lease, settled = 3 * time.Second, 12 * time.Second
	w := newWorldIn(t, NewDelayed(t, size, time.Millisecond), lease)
	cluster.Span(t, window)
	for i := range size {
		since := time.Now()
		w.Slow(i, 900*time.Millisecond)
		cluster.Span(t, 3*settled)
		timing.Within(t, "no request", cluster.Gap(w.judge.Since(since), since, time.Now()), 2*lease)
		since = since.Add(settled)
		timing.Within(t, "no request after that", cluster.Gap(w.judge.Since(since), since, time.Now()), lease)
		w.Slow(i, 0)
		cluster.Span(t, 4*lease)
	}
	w.checkBound(t)
}

// TestBlackout loses all packets between gateways for half a lease, three times: no lease is lost.
func TestBlackout(t *testing.T) {
	cluster.OnlySoak(t, "internal/membership/core's TestOthersKeepTheirLeases has the same without processes")
	t.Parallel()
	const lease = 3 * time.Second
	w := newWorldIn(t, New(t, size), lease)
	cluster.Span(t, lease)
	for range 3 {
		began := time.Now()
		w.Set(t, Split(Drop, []int{0}, []int{1}, []int{2}, []int{3}, []int{4})...)
		cluster.Span(t, lease/2)
		w.Heal(t)
		cluster.Span(t, 2*lease)
		timing.Within(t, "no request in half a lease without packets, and after it", cluster.Gap(w.judge.Since(began), began, time.Now()), lease/2+time.Second)
	}
	cluster.KeptLeases(t, w.cluster)
	w.checkBound(t)
}

// TestLongRoundTrips runs five gateways that are 300 ms apart, there and back,
// with the default lease. Nothing must happen: no election, no suspension, no
// lease lost, no link broken, no request refused. When no packet arrives for half a second,
// leases may lapse, but not again and again.
func TestLongRoundTrips(t *testing.T) {
	cluster.OnlySoak(t, "internal/membership's TestRoundTrips has the same with gateways of one process")
	t.Parallel()
	const (
		oneWay = 150 * time.Millisecond
		lease  = 3 * time.Second
		during = 10 * time.Minute
	)
	w := newWorldIn(t, NewDelayed(t, size, oneWay), lease)
	ctx, cancel := context.WithTimeout(t.Context(), 10*lease)
	defer cancel()
	if err := cluster.Await(ctx, func() error {
		s, err := w.cluster.Gateways[0].Status(ctx)
		if err == nil && s.Cluster.Voters != size {
			err = fmt.Errorf("%d vote", s.Cluster.Voters)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	cluster.Span(t, lease)

	// What they log when something happens.
	signs := []string{
		"leading", "gateway lost: its slots come back when its lease has run out", "gateway left",
		"rejoining as a new incarnation", "lease lost: rejoining as a new incarnation",
		"lease granted", "link down", "pool installed", "pool waits for its home",
	}
	count := func() (n map[string]int) {
		n = make(map[string]int)
		for _, g := range w.cluster.Gateways {
			for _, sign := range signs {
				n[sign] += len(g.Log.Records(sign))
			}
			for _, r := range g.Log.Records("gateway observed") {
				if r.Text("status") == "failed" {
					n["gateway observed: failed"]++
				}
			}
		}
		return n
	}
	began, before := time.Now(), count()
	cluster.Span(t, during)
	for sign, n := range count() {
		if n != before[sign] {
			t.Errorf("%d times within %v: %s", n-before[sign], during, sign)
		}
	}
	arrivals := w.judge.Since(began)
	t.Logf("%d requests in %v; none for %v; %s", len(arrivals), during, cluster.Gap(arrivals, began, time.Now()).Round(time.Millisecond),
		cluster.Refusals(w.load.Since(began)))
	if served := cluster.Served(w.load.Since(began), time.Now()); len(served) != size {
		t.Errorf("%d gateways serve: %v", len(served), served)
	}
	w.checkBound(t)
	for _, a := range w.load.Since(began) {
		if a.Result != cluster.OK {
			t.Errorf("a request at %s: %s", a.Gateway, a.Result)
			break
		}
	}

	began = time.Now()
	w.Set(t, Split(Drop, []int{0}, []int{1}, []int{2}, []int{3}, []int{4})...)
	cluster.Span(t, 500*time.Millisecond)
	w.Heal(t)
	cluster.Span(t, 5*lease)
	gap := cluster.Gap(w.judge.Since(began), began, time.Now())
	t.Logf("after half a second without packets: none for %v", gap.Round(time.Millisecond))
	if gap > 3*lease {
		t.Errorf("no request for %v after half a second without packets", gap)
	}
	w.checkBound(t)
}

// TestLetInOverLongRoundTrips: where gateways are 300 ms apart, with TLS, five that start together
// are let in, and one that is started again. Nobody is suspended meanwhile.
func TestLetInOverLongRoundTrips(t *testing.T) {
	cluster.OnlySoak(t, "internal/membership's TestRoundTrips has long ones with gateways of one process")
	t.Parallel()
	const lease = 3 * time.Second
	key := filepath.Join(t.TempDir(), "cluster.key")
	if err := os.WriteFile(key, []byte(clusterkey.New()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w := startWorld(t, NewDelayed(t, size, 150*time.Millisecond), cluster.Options{Gateways: size, Lease: lease, KeyFile: key})
	t.Logf("all ready %v after they were started", time.Since(began).Round(time.Millisecond))
	if _, err := w.cluster.Gateways[2].Stop(); err != nil {
		t.Fatal(err)
	}
	restarted := time.Now()
	again := w.cluster.Restart(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*lease)
	defer cancel()
	if err := again.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready %v after it was started again", time.Since(restarted).Round(time.Millisecond))
	cluster.Span(t, 2*lease)
	lost := w.cluster.Gateways[0].Log.Records("gateway lost: its slots come back when its lease has run out")
	for _, r := range lost {
		t.Errorf("%s was suspended: %s", r.Text("name"), r.Text("reason"))
	}
	w.checkBound(t)
}
