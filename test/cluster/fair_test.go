package cluster

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// TestClientsInTurn: two clients, at different gateways, with ten times as many requests at one of them. In the
// order fair both have equal shares of the slots' time, or those of their weights, as upstreams count it.
// Clients are told apart by the gateway that they ask.
func TestClientsInTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const (
		mean  = 100 * time.Millisecond
		begin = 2 * time.Second
		lasts = 12 * time.Second
	)
	weighted := newUpstreamOfK(t, 8, mean)
	c, equal := startUpstreamsOfK(t, Options{
		Queue: `order: fair, per_client: {key: "header:Test-Gateway"}`,
		Pools: []Pool{{Name: "weighted", K: weighted.k, Upstream: weighted.url(), Settings: `queue: {order: fair, weights: ["gw-2=3"], per_client: {key: "header:Test-Gateway"}}`}},
	}, mean, 2, 2, 4)
	hog, small := c.Gateways[0], c.Gateways[1]
	if small.Name != "gw-2" {
		t.Fatalf("the second gateway is called %s", small.Name)
	}
	for _, path := range []string{"/", "/weighted/"} {
		StartLoad(t, []*Gateway{hog}, LoadOptions{Clients: 160, Path: path})
		StartLoad(t, []*Gateway{small}, LoadOptions{Clients: 16, Path: path})
	}
	Span(t, begin)
	since := time.Now()
	Span(t, lasts)
	until := time.Now()
	text, _, _ := run(t, "status", "--admin", "http://"+c.Gateways[2].Admin)
	data, _, _ := run(t, "status", "--json", "--admin", "http://"+c.Gateways[2].Admin)
	for _, p := range []struct {
		name   string
		at     []*upstreamOfK
		weight float64 // of the small one
	}{{PoolName, equal, 1}, {"weighted", []*upstreamOfK{weighted}, 3}} {
		had := slotTime(p.at, since, until)
		share := had[small.Name].Seconds() / (had[small.Name] + had[hog.Name]).Seconds()
		want := p.weight / (p.weight + 1)
		t.Logf("%s: %.3f of the slots' time is the small client's, %.3f its share; slots busy %.1f %%", p.name, share, want, 100*slotsBusy(p.at, since, until))
		if math.Abs(share/want-1) > 0.1 || math.Abs((1-share)/(1-want)-1) > 0.1*p.weight {
			t.Errorf("%s: the small client has %.2f of its share, the other one %.2f", p.name, share/want, (1-share)/(1-want))
		}
		checkUpstreams(t, p.at)
	}
	checkShares(t, text, data)
}

// checkShares looks at what kgate status, at a gateway that has no clients, says of them.
func checkShares(t *testing.T, text, data string) {
	t.Helper()
	if !strings.Contains(text, "CLIENT ") || !strings.Contains(text, ", weight 3") {
		t.Errorf("kgate status says nothing of clients:\n%s", text)
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(data), &s); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Pools {
		if len(p.Fleet.Shares) != 2 {
			t.Errorf("%s has the clients %+v", p.Name, p.Fleet.Shares)
		}
		for _, of := range p.Fleet.Shares {
			if t.Logf("%s: %+v", p.Name, of); !strings.HasPrefix(of.Client, "#") || of.Slots == 0 || of.Waiting == 0 || of.Wait.Count == 0 {
				t.Errorf("%s shows the client %+v", p.Name, of)
			}
		}
	}
}
