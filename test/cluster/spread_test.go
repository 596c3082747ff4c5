package cluster

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestSpread: after a burst at one gateway the free tokens are spread again, by one
// epoch, and then each gateway can admit without a message.
func TestSpread(t *testing.T) {
	OnlySoak(t, "internal/pool has the same in virtual time")
	t.Parallel()
	_, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { hold(req, 50*time.Millisecond) }))
	c := Start(t, Options{K: 16, Upstream: url})
	for i, g := range c.Gateways {
		Span(t, 10*time.Second) // as often as home asks
		before := spreads(c)
		burst := StartLoad(t, []*Gateway{g}, LoadOptions{Clients: 48})
		Span(t, 500*time.Millisecond)
		burst.Stop()
		ended := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := Await(ctx, func() error {
			for i, seen := range spreads(c) {
				if len(seen) == len(before[i]) {
					return fmt.Errorf("%s has begun no epoch that spreads the tokens", c.Gateways[i].Name)
				}
			}
			return nil
		})
		cancel()
		if err != nil {
			t.Fatalf("burst %d: %v", i+1, err)
		}
		after := time.Since(ended)
		longest := 0.0
		for _, seen := range spreads(c) {
			longest = max(longest, seen[len(seen)-1])
		}
		t.Logf("spread %v after the burst; the epoch kept requests waiting for %.1f ms at most", after.Round(10*time.Millisecond), longest)
		admitAlone(t, c)
		for _, g := range c.Gateways {
			if lost := g.Log.Records("message to a peer is lost"); len(lost) > 0 {
				t.Errorf("%s: %v", g.Name, lost[0])
			}
		}
	}
	quiet := spreads(c)
	Span(t, 12*time.Second)
	for i, seen := range spreads(c) {
		if len(seen) != len(quiet[i]) {
			t.Errorf("%s: %d epochs more, and nobody came", c.Gateways[i].Name, len(seen)-len(quiet[i]))
		}
	}
}

// spreads returns, for each gateway, how many milliseconds the start of each epoch took
// there that spread tokens.
func spreads(c *Cluster) [][]float64 {
	took := make([][]float64, len(c.Gateways))
	for i, g := range c.Gateways {
		for _, r := range g.Log.Records("pool installed") {
			if r.Text("reason") == "spread" {
				ms, _ := r["took_ms"].(float64)
				took[i] = append(took[i], ms)
			}
		}
	}
	return took
}

// admitAlone asks each gateway once, and fails if that took a message.
func admitAlone(t *testing.T, c *Cluster) {
	t.Helper()
	before, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range c.Gateways {
		res, err := http.Get(g.URL())
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", g.Name, res.Status, err)
		}
	}
	after, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := after.Since(before).Sum("kgate_messages_total", `direction="sent"`); n > 0 {
		t.Errorf("a request at each gateway took %v messages", n)
	}
}
