package cluster_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

// TestAllTokensAtOneGateway: for what part of the time a gateway uses all k tokens, while clients wait at all
// three. If it is killed then, nobody else has a token until its lease has run out. With requests in the order of
// their arrival it is the part of the load that the gateway has, to the power of k. Docs/guarantees.md has the table.
func TestAllTokensAtOneGateway(t *testing.T) {
	for _, share := range []int{34, 50, 70, 90} {
		for _, k := range []int{1, 2, 3, 6, 12, 24} {
			got, want := allAtOne(t, k, share), math.Pow(float64(share)/100, float64(k))
			t.Logf("%d %% of the load, k = %d: all tokens for %.1f %% of the time; %.1f %% if each had its own order", share, k, 100*got, 100*want)
			if math.Abs(got-want) > .1 {
				t.Errorf("%d %% of the load, k = %d: all tokens for %.1f %% of the time, want about %.1f %%", share, k, 100*got, 100*want)
			}
		}
	}
}

// allAtOne returns for what part of the time no request of two gateways is served, which have what one leaves.
func allAtOne(t *testing.T, k, share int) float64 {
	const (
		mean    = 40 * time.Millisecond
		clients = 20 // for each slot: they wait for half of their time, and pause for the other half
		began   = 5 * time.Second
		end     = 35 * time.Second
	)
	type asked struct {
		*cluster.Request
		hold time.Duration
	}
	r := rand.New(rand.NewPCG(1, uint64(100*k+share)))
	open := make([]asked, clients*k)
	host := func(client int) int {
		if 100*client < share*clients*k {
			return 0
		}
		return 1 + client%2
	}
	var c *cluster.Cluster
	c = cluster.New(cluster.Config{
		Seed: 1, Hosts: 3, Members: 3, K: k, Network: network.Constant(time.Millisecond),
		Ask: 12 * time.Millisecond, Lease: 3 * time.Second,
		Due: func(client uint64) {
			hold := time.Duration(r.ExpFloat64() * float64(mean))
			open[client] = asked{c.Request(host(int(client)), hold, 0), hold}
		},
	})
	for client := range open {
		c.At(2*time.Second+time.Duration(r.Int64N(int64(mean)*clients)), uint64(client))
	}
	const step = time.Millisecond
	others := make([]bool, (end-began)/step) // one of them is served
	for c.Step(end) {
		if err := c.Err(); err != nil {
			t.Fatal(err)
		}
		for client, a := range open {
			if a.Request == nil || a.Outcome() == "" {
				continue
			}
			if open[client].Request = nil; host(client) != 0 {
				for at := max(c.Now()-a.hold, began); at < min(c.Now(), end); at += step {
					others[(at-began)/step] = true
				}
			}
			c.At(c.Now()+time.Duration(r.ExpFloat64()*float64(mean)*clients/2), uint64(client))
		}
	}
	none := 0
	for _, one := range others {
		if !one {
			none++
		}
	}
	return float64(none) / float64(len(others))
}
