package cluster

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// TestWitness has two gateways and a witness. Each of the three is killed and paused:
// the others go on within the bounds of three gateways, and never more than k are in
// flight.
func TestWitness(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const (
		k = 6
	)
	lease := Lease(time.Second)
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { hold(req, 60*time.Millisecond) }))
	c := Start(t, Options{Gateways: 3, Witness: true, K: k, Upstream: url, Durable: true, Lease: lease})
	judge.Keep()
	load := StartLoad(t, c.Gateways[:2], LoadOptions{Clients: 8})
	Span(t, time.Second)
	for i, faults := range [][]syscall.Signal{{syscall.SIGKILL, syscall.SIGSTOP}, {syscall.SIGSTOP, syscall.SIGKILL}, {syscall.SIGKILL, syscall.SIGSTOP}} {
		if !Soak() {
			faults = faults[:1]
		}
		for _, fault := range faults {
			g := c.Gateways[i]
			t.Logf("%s, %v", g.Name, fault)
			began := time.Now()
			if err := g.Signal(fault); err != nil {
				t.Fatal(err)
			}
			Span(t, lease*11/10)
			judge.AwaitInFlight(t, g.Name+" is lost", time.Now(), k, lease)
			bound := lease + Whole(lease) // an election first, if it was the leader
			if i == 2 {
				bound = lease / 4 // nobody waits for the witness
			}
			timing.Within(t, "no request while "+g.Name+" is lost", Gap(judge.Since(began), began, time.Now()), bound)
			if fault == syscall.SIGKILL {
				if _, err := g.Wait(patience); err != nil {
					t.Fatal(err)
				}
				g = c.Restart(t, i)
			} else if err := g.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := g.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := Await(ctx, func() error {
				if served := Served(load.Since(back), time.Now()); len(served) != 2 {
					return fmt.Errorf("after the return of %s: %v", g.Name, served)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	load.Stop()
	if len(c.Gateways[0].Log.Records("witness lost")) == 0 {
		t.Error("nobody says that the witness is lost")
	}
	if rss, err := c.Gateways[2].RSS(); err == nil {
		t.Logf("the witness uses %.1f MiB", float64(rss)/(1<<20))
	}
	if _, most, _ := judge.Counts(); most != k {
		t.Errorf("most in flight %d, k is %d", most, k)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Await(ctx, func() error {
		s, err := c.Gateways[2].Status(ctx)
		if err != nil {
			return err
		}
		if got := fmt.Sprint(s.Cluster.Voters, s.Cluster.LossesTolerated, len(s.Pools)); got != "3 1 0" {
			return fmt.Errorf("the witness says: voters, losses tolerated, pools: %s", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
