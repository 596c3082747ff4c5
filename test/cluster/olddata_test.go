package cluster

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestOldDataDirs puts copies of two of three data directories back, which are from the
// time before k was lowered. The upstream sees no more than the k that was agreed on last.
func TestOldDataDirs(t *testing.T) {
	if os.Getenv(SoakVariable) == "" {
		t.Skip("runs with " + SoakVariable + "=1; without it, membership's TestOldCopies is the same with gateways of one process")
	}
	t.Parallel()
	const before, k = 12, 2
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, 20*time.Millisecond) }))
	judge.Keep()
	c := Start(t, Options{K: before, Upstream: url, Durable: true})
	copies := t.TempDir()
	for _, g := range c.Gateways[:2] {
		if err := os.CopyFS(filepath.Join(copies, g.Name), os.DirFS(c.DataDir(g.Name))); err != nil {
			t.Fatal(err)
		}
	}
	setK(t, c.Gateways[2], PoolName, k)
	for _, g := range c.Gateways {
		if err := g.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Wait(patience); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range c.Gateways[:2] {
		dir := c.DataDir(g.Name)
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join(copies, g.Name)))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.Gateways {
		c.Restart(t, i)
	}
	c.opt.K = k // and not before: the configuration still says what it said
	began := time.Now()
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 24}) // refusals until the cluster is there
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, g := range c.Gateways {
		if err := g.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	load.Stop()
	if err := c.AwaitWhole(ctx); err != nil { // the leases of those that were killed are over
		t.Fatal(err)
	}
	load = StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	Span(t, time.Second)
	load.Stop()
	most := 0
	for _, a := range judge.Since(began) {
		most = max(most, a.InFlight)
	}
	if most != k {
		t.Errorf("%d in flight, k was %d and is %d; answers: %s", most, before, k, Refusals(load.Since(began)))
	}
}
