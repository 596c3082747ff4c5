package cluster

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestStalls stops one of five gateways for two of every five seconds, as a starved machine
// does. The line stands still each time until the others have noticed, or until it goes on, and
// moves again at once; there are never more than k at the upstream.
func TestStalls(t *testing.T) {
	if testing.Short() {
		t.Skip("takes twenty seconds")
	}
	const (
		k, held     = 6, 20 * time.Millisecond
		stall, calm = 2 * time.Second, 3 * time.Second
		bound       = stall + time.Second
	)
	j, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, held) }))
	j.Keep()
	c := Start(t, Options{Gateways: 5, K: k, Upstream: url})
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	Span(t, calm)
	usual := float64(len(j.Since(time.Now().Add(-stall)))) / stall.Seconds()
	stops := []string{"home", "home"}
	if Soak() {
		stops = []string{"home", "home", "home", "leader", "leader", "leader", "other", "other", "other"}
	}
	began := time.Now()
	for _, role := range stops {
		roles, err := c.Roles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		victim := c.Gateways[map[string]int{"home": roles.Home, "leader": roles.Leader, "other": other(roles)}[role]]
		stopped := time.Now()
		if err := victim.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		Span(t, stall)
		if err := victim.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		Span(t, calm)
		all := j.Since(stopped)
		gap := Gap(all, stopped, time.Now())
		t.Logf("%s stalls: no request for %v, %.0f %% of the usual ones in 5 s", role, gap.Round(time.Millisecond), 100*float64(len(all))/usual/(stall+calm).Seconds())
		if gap > bound {
			t.Errorf("no request for %v, want less than %v", gap, bound)
		}
	}
	all := j.Since(began)
	_, most, _ := j.Counts()
	t.Logf("%.0f %% of the usual requests in all; at most %d of %d; refused: %s", 100*float64(len(all))/usual/time.Since(began).Seconds(), most, k, Refusals(load.Since(began)))
	if most > k {
		t.Errorf("%d at the upstream, k is %d", most, k)
	}
}

// other returns a gateway that neither leads nor is the home.
func other(r Roles) int {
	for i := range 3 {
		if i != r.Home && i != r.Leader {
			return i
		}
	}
	return 0
}
