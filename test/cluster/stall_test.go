package cluster

import (
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestStalls stops one of five gateways again and again, as a machine that swaps or is
// starved does: for two of every five seconds. The lease is the default one.
func TestStalls(t *testing.T) {
	rounds := 3
	if v := os.Getenv("KGATE_STALLS"); v != "" {
		fmt.Sscan(v, &rounds)
	}
	const k, held = 6, 20 * time.Millisecond
	j, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, held) }))
	j.Keep()
	c := Start(t, Options{Gateways: 5, K: k, Upstream: url})
	for _, role := range []string{"home", "leader", "other"} {
		t.Run(role, func(t *testing.T) {
			roles, err := c.Roles(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]int{"home": roles.Home, "leader": roles.Leader}[role]
			if role == "other" {
				for at == roles.Home || at == roles.Leader {
					at++
				}
			}
			victim := c.Gateways[at]
			load := StartLoad(t, c.Gateways, LoadOptions{Clients: 8})
			Span(t, 3*time.Second)
			calm := len(j.Since(time.Now().Add(-2 * time.Second)))
			began := time.Now()
			for i := range rounds {
				stopped := time.Now()
				if err := victim.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				Span(t, 2*time.Second)
				if err := victim.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				Span(t, 3*time.Second)
				all := j.Since(stopped)
				t.Logf("%d:%s gap %v in 5 s, %.0f %% of before", i, roles.Of(at), Gap(all, stopped, time.Now()).Round(time.Millisecond), 100*float64(len(all))/float64(calm)*2/5)
			}
			all := j.Since(began)
			t.Logf("%s: %.0f %% of the requests; %s", role, 100*float64(len(all))/float64(calm)*2/time.Since(began).Seconds(), Refusals(load.Since(began)))
			load.Stop()
			Span(t, 4*time.Second)
		})
	}
	_, most, _ := j.Counts()
	t.Logf("most in flight %d of %d", most, k)
}
