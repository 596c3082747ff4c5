package cluster

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestStalls stops one of five gateways again and again, as a starved machine does. The line
// stands still each time until it goes on, or until the others do without it, and moves again at
// once; there are never more than k at the upstream.
func TestStalls(t *testing.T) {
	if testing.Short() {
		t.Skip("takes twenty seconds")
	}
	const (
		k, held = 6, 20 * time.Millisecond
		lease   = 3 * time.Second
		calm    = lease
	)
	j, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, held) }))
	j.Keep()
	c := Start(t, Options{Gateways: 5, K: k, Upstream: url, Lease: lease})
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	Span(t, calm)
	usual := float64(len(j.Since(time.Now().Add(-time.Second))))
	type stop struct {
		role string
		long time.Duration
	}
	stops := []stop{{"home", 2 * time.Second}, {"home", 4 * time.Second}}
	if Soak() {
		stops = nil
		for _, role := range []string{"home", "leader", "other"} {
			for _, long := range []time.Duration{2, 2, 2, 4, 4} {
				stops = append(stops, stop{role, long * time.Second})
			}
		}
	}
	began := time.Now()
	for _, stop := range stops {
		roles, err := c.Roles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := map[string]int{"home": roles.Home, "leader": roles.Leader, "other": other(roles)}[stop.role]
		victim := c.Gateways[i]
		stopped := time.Now()
		if err := victim.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		Span(t, stop.long)
		if err := victim.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		Span(t, calm)
		all := j.Since(stopped)
		gap := Gap(all, stopped, time.Now())
		stood := Stood(stopped, stopped.Add(gap))
		bound := min(stop.long, withoutIt(lease, i, roles)) + 500*time.Millisecond
		t.Logf("%s stalls for %v: no request for %v, of which the machine stood for %v; %.0f %% of the usual ones in %v",
			victim.Name+roles.Of(i), stop.long, gap.Round(time.Millisecond), stood, 100*float64(len(all))/usual/(stop.long+calm).Seconds(), stop.long+calm)
		if gap > bound+stood {
			t.Errorf("no request for %v, of which the machine stood for %v; want at most %v", gap, stood, bound)
		}
	}
	all := j.Since(began)
	_, most, _ := j.Counts()
	t.Logf("%.0f %% of the usual requests in all; at most %d of %d; refused: %s", 100*float64(len(all))/usual/time.Since(began).Seconds(), most, k, Refusals(load.Since(began)))
	if most > k {
		t.Errorf("%d at the upstream, k is %d", most, k)
	}
}

// withoutIt returns how long it takes until the others do without a gateway that stands: half a
// lease; if it is the home, to which tokens go meanwhile, until its lease has run out; and
// if it leads, until they have elected another leader.
func withoutIt(lease time.Duration, i int, r Roles) time.Duration {
	d := lease / 2
	if i == r.Home {
		d = lease * 11 / 10
	}
	if i == r.Leader {
		d += lease / 3
	}
	return d
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
