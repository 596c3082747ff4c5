package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// TestSetK changes k of two busy pools, one of each binding, while the upstream
// looks on.
func TestSetK(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const (
		first   = 6
		busy    = 150 * time.Millisecond // of each request
		exactIn = 100 * time.Millisecond
	)
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, busy) })
	late, _, lateURL := NewJudge(t, slow)
	early, _, earlyURL := NewJudge(t, slow)
	late.Keep()
	early.Keep()
	c := Start(t, Options{K: first, Upstream: lateURL, Pools: []Pool{{Name: "early", K: first, Upstream: earlyURL, Settings: "binding: early"}}})
	loads := []*Load{StartLoad(t, c.Gateways, LoadOptions{Clients: 8}), StartLoad(t, c.Gateways, LoadOptions{Clients: 8, Path: "/early/"})}
	Span(t, 4*busy)

	k := first
	changes := make(map[string][]Change)
	for _, next := range []int{12, 3, 6} {
		for pool, judge := range map[string]*Judge{PoolName: late, "early": early} {
			asked := time.Now()
			setK(t, c.Gateways[next%3], pool, next)
			agreed := time.Now()
			exact := agreed.Add(timing.Slack() * exactIn)
			if next < k {
				exact = exact.Add(timing.Slack() * busy) // all that were in flight have ended
			}
			changes[pool] = append(changes[pool], Change{next, asked, exact})
			Span(t, time.Until(exact.Add(4*busy)))
			judge.AwaitInFlight(t, pool, exact, next, 4*busy)
			most, after := 0, 0
			for _, a := range judge.Since(asked) {
				most = max(most, a.InFlight)
				if a.At.After(exact) {
					after = max(after, a.InFlight)
				}
			}
			t.Logf("%s: k %d to %d, agreed after %v: at most %d in flight from then on, %d later", pool, k, next, agreed.Sub(asked).Round(time.Millisecond), most, after)
			if most > max(k, next) || after != next {
				t.Errorf("%s: k %d to %d: at most %d in flight from then on, and %d later", pool, k, next, most, after)
			}
		}
		k = next
	}
	late.CheckHistory(t, PoolName, first, changes[PoolName]...)
	early.CheckHistory(t, "early", first, changes["early"]...)
	for _, l := range loads {
		if answers := l.Since(time.Time{}); len(answers) == 0 || Refusals(answers) != "map[]" {
			t.Errorf("%d answers, %s", len(answers), Refusals(answers))
		}
	}
	badK(t, c)
	twoOperators(t, c)
}

func setK(t *testing.T, g *Gateway, pool string, k int) {
	t.Helper()
	if _, said, code := run(t, "pool", "set", pool, "--k", strconv.Itoa(k), "--admin", "http://"+g.Admin); code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
}

// badK has values that cannot be.
func badK(t *testing.T, c *Cluster) {
	t.Helper()
	at := "http://" + c.Gateways[0].Admin
	expect(t, 2, []string{"--k", "1"}, "pool", "set", PoolName, "--k", "0", "--admin", at)
	expect(t, 2, []string{"--k", "1"}, "pool", "set", PoolName, "--k=-3", "--admin", at)
	expect(t, 2, []string{"--k"}, "pool", "set", PoolName, "--admin", at)
	expect(t, 1, []string{"nobody", PoolName}, "pool", "set", "nobody", "--k", "3", "--admin", at)
	expect(t, 1, []string{"k"}, "pool", "set", PoolName, "--k", "2000000000", "--admin", at)
}

// twoOperators change k at the same time, at different gateways. Whoever comes
// second is told, or it comes after the other as a whole.
func twoOperators(t *testing.T, c *Cluster) {
	t.Helper()
	type said struct {
		text string
		code int
	}
	for round := range 5 {
		other := make(chan said, 1)
		go func() {
			_, text, code := run(t, "pool", "set", PoolName, "--k", "7", "--admin", "http://"+c.Gateways[1].Admin)
			other <- said{text, code}
		}()
		_, text, code := run(t, "pool", "set", PoolName, "--k", "8", "--admin", "http://"+c.Gateways[2].Admin)
		for _, s := range []said{{text, code}, <-other} {
			if refused := s.code == 1 && strings.Contains(s.text, "changed"); s.code != 0 && !refused {
				t.Errorf("round %d: exit code %d: %s", round, s.code, s.text)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), timing.Slack()*time.Second)
		err := Await(ctx, func() error {
			pools, err := c.Pools(ctx)
			if err != nil {
				return err
			}
			for _, p := range pools {
				if p.K != pools[0].K || p.K != 7 && p.K != 8 {
					return fmt.Errorf("k is %d at one gateway, %d at another", pools[0].K, p.K)
				}
			}
			return nil
		})
		cancel()
		if err != nil {
			t.Error(err)
		}
	}
}
