package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/internal/timing"
)

// TestJoinUnderLoad has a fourth gateway join three that are busy.
func TestJoinUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const (
		k      = 6
		aim    = 50 * time.Millisecond
		bound  = 300 * time.Millisecond
		around = 2 * time.Second
	)
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, 50*time.Millisecond) }))
	judge.Keep()
	c := Start(t, Options{K: k, Upstream: url})
	stop := background(t, c, 60)
	Span(t, around)
	calm := time.Now()
	Span(t, around)
	began := time.Now()
	before := Gap(judge.Since(calm), calm, began)
	g := c.Launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	ready := time.Since(began)
	freshAtRoot(t, c) // the newcomer's first request included
	Span(t, around)
	during := Gap(judge.Since(began), began, time.Now())
	load := stop()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Error(err)
	}
	_, most, _ := judge.Counts()
	t.Logf("longest time between admissions %v before, %v around the join (aim %v); ready after %v; failed %v, most in flight %d",
		before.Round(time.Millisecond), during.Round(time.Millisecond), aim, ready.Round(time.Millisecond), load.Overall.Failed, most)
	timing.Within(t, "the longest time between admissions", during, bound)
	if load.Overall.Errors > 0 || most != k {
		t.Errorf("failed %v, most in flight %d; k is %d", load.Overall.Failed, most, k)
	}
}

// busyCluster is three gateways with an upstream whose answers take a while.
func busyCluster(t *testing.T, k int, opt Options) (*Cluster, *demo.Upstream) {
	t.Helper()
	u, url := serveSlowly(t, &demo.Upstream{Hold: 60 * time.Millisecond, SCV: 1}, 16<<10)
	opt.K, opt.Upstream = k, url
	return Start(t, opt), u
}

// checkUpstream holds that nothing was broken off and k was kept.
func checkUpstream(t *testing.T, u *demo.Upstream, k int) {
	t.Helper()
	if s := u.Stats(); s.Aborted > 0 || s.Max != k {
		t.Errorf("at the upstream %d requests were aborted, %d served, most in flight %d; k is %d", s.Aborted, s.Served, s.Max, k)
	}
}

// TestRollingRestart restarts each of three busy gateways. No request fails
// that is sent to another gateway when one refuses it, and no answer is broken
// off, however long it takes. No gateway logs a warning, none loses its lease, and
// none refuses a peer.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k, slowK = 6, 4
	slow, slowURL := serveSlowly(t, &demo.Upstream{Hold: 800 * time.Millisecond}, 64<<10)
	c, u := busyCluster(t, k, Options{Durable: true, Pools: []Pool{{Name: "slow", K: slowK, Upstream: slowURL}}})
	var urls, slowURLs []string
	for _, g := range c.Gateways {
		urls = append(urls, g.URL())
		slowURLs = append(slowURLs, g.URL()+"slow/")
	}
	calls, slowCalls := newCaller(t, urls...), newCaller(t, slowURLs...)
	stops := []func(){calls.run(t, 60), slowCalls.run(t, 6)}
	Span(t, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var logs []*Log // Restart makes a process and a log of its own
	for i := range c.Gateways {
		began := time.Now()
		logs = append(logs, c.Gateways[i].Log)
		if code, err := c.Gateways[i].Stop(); err != nil || code != 0 {
			t.Errorf("%s: exit code %d, %v", c.Gateways[i].Name, code, err)
		}
		stopped := time.Since(began)
		if err := c.Restart(t, i).AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: ended after %v, ready again after %v", c.Gateways[i].Name, stopped.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		Span(t, 500*time.Millisecond)
	}
	for _, stop := range stops {
		stop()
	}
	if err := c.AwaitWhole(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("%d answers, slowest after %v, %d attempts were sent elsewhere; %d slow ones, %v, %d", calls.answered.Load(), calls.slowest.Round(time.Millisecond), calls.retried.Load(),
		slowCalls.answered.Load(), slowCalls.slowest.Round(time.Millisecond), slowCalls.retried.Load())
	checkUpstream(t, u, k)
	checkUpstream(t, slow, slowK)
	freshAtRoot(t, c)
	for _, g := range c.Gateways {
		logs = append(logs, g.Log)
		m, err := g.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"kgate_lease_lost_total", "kgate_peer_refused_total"} {
			if n := m.Sum(name); n != 0 {
				t.Errorf("%s of %s is %g", name, g.Name, n)
			}
		}
	}
	noTrouble(t, logs)
}

// noTrouble holds that an orderly restart is none in the logs.
func noTrouble(t *testing.T, logs []*Log) {
	t.Helper()
	// These are the machine's: its disk, and that a gateway which has just started does not hear of the others for a while.
	slow := []string{"the disk of data_dir is slow", "not in the cluster", "cannot reach peer"}
	for _, log := range logs {
		lines, _ := log.Lines()
		for _, line := range lines {
			var r Record
			if json.Unmarshal([]byte(line), &r) == nil && slices.Contains([]string{"WARN", "ERROR"}, r.Text("level")) &&
				!slices.Contains(slow, r.Text("msg")) && !strings.Contains(r.Text("error"), "unknown peer") { // who has just left, before the next epoch
				t.Errorf("an orderly restart is logged as trouble: %s", line)
			}
		}
	}
}

// TestAllRestart ends all gateways at once, in order or not, and starts them
// again on their data_dir.
func TestAllRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			const k = 6
			u, url := ServeUpstream(t, &demo.Upstream{Hold: 50 * time.Millisecond})
			c := Start(t, Options{K: k, Upstream: url, Durable: true})
			stop := background(t, c, 30)
			Span(t, time.Second)
			view := newestView(t, c)
			began := time.Now()
			for _, g := range c.Gateways {
				if err := g.Signal(how); err != nil {
					t.Error(err)
				}
			}
			var codes []int
			for _, g := range c.Gateways {
				code, err := g.Wait(patience)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code)
			}
			ended := time.Since(began)
			stop()
			if how == syscall.SIGTERM && slices.Max(codes) != 0 {
				t.Errorf("exit codes %v", codes)
			}
			began = time.Now()
			for i := range c.Gateways {
				c.Restart(t, i)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for _, g := range c.Gateways {
				if err := g.AwaitReady(ctx); err != nil {
					t.Fatal(err)
				}
			}
			ready := time.Since(began)
			if err := c.AwaitWhole(ctx); err != nil {
				t.Error(err)
			}
			freshAtRoot(t, c)
			if now := newestView(t, c); now <= view {
				t.Errorf("view %d was agreed on before, now it is %d: the past is forgotten", view, now)
			}
			t.Logf("ended after %v with %v, ready again after %v", ended.Round(time.Millisecond), codes, ready.Round(time.Millisecond))
			if most := u.Stats().Max; most != k {
				t.Errorf("most in flight %d, k is %d", most, k)
			}
		})
	}
}

// newestView is the newest agreed view that a gateway knows.
func newestView(t *testing.T, c *Cluster) (newest uint64) {
	t.Helper()
	for _, g := range c.Gateways {
		s, err := g.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		newest = max(newest, s.Cluster.View)
	}
	return newest
}
