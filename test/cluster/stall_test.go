package cluster

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// TestStalls stops one of five gateways again and again, as a starved machine does. The line
// stands still each time until it goes on, or until the others do without it, and moves again at
// once; there are never more than k at the upstream. In the ordinary run nobody does without it:
// nothing is refused.
func TestStalls(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	const (
		k, held = 6, 60 * time.Millisecond
		calm    = 3 * time.Second
	)
	lease := Lease(3 * time.Second)
	j, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, held) }))
	j.Keep()
	c := Start(t, Options{Gateways: 5, K: k, Upstream: url, Lease: lease})
	c.WatchStatus(t)
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
	Span(t, calm)
	usual := float64(len(j.Since(time.Now().Add(-time.Second))))
	type stop struct {
		role string
		long time.Duration
	}
	stops := []stop{{"home", time.Second}, {"leader", time.Second}}
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
		what := fmt.Sprintf("%s stalls for %v", victim.Name+roles.Of(i), stop.long)
		j.AwaitInFlight(t, what+", and goes on", time.Now(), k, time.Second)
		Span(t, calm)
		all := j.Since(stopped)
		t.Logf("%s: %.0f %% of the usual requests in %v", what, 100*float64(len(all))/usual/time.Since(stopped).Seconds(), stop.long+calm)
		timing.Within(t, what+": no request", Gap(all, stopped, time.Now()), min(stop.long, withoutIt(lease, i, roles))+500*time.Millisecond)
	}
	all := j.Since(began)
	_, most, _ := j.Counts()
	refused := Refusals(load.Since(began))
	t.Logf("%.0f %% of the usual requests in all; at most %d of %d; refused: %s", 100*float64(len(all))/usual/time.Since(began).Seconds(), most, k, refused)
	if !Soak() && refused != "map[]" {
		t.Errorf("refused: %s", refused)
	}
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
