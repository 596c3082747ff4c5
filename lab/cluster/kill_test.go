package cluster_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

// A random gateway is killed while k is not reached. Free tokens are at the others,
// too, so their requests do not wait for its lease of 3 s to run out.
func TestKillAtLightLoad(t *testing.T) {
	kills := 300
	if testing.Short() {
		kills = 30
	}
	for _, n := range []int{3, 5} {
		for _, l := range []killed{
			{load: .1, hold: 100 * time.Millisecond},
			{load: .3, hold: 100 * time.Millisecond},
			{load: .3, hold: time.Second},
			{load: .1, hold: 100 * time.Millisecond, burst: true},
		} {
			l.nodes = n
			var waits []time.Duration
			over := 0
			for seed := range uint64(kills) {
				w := l.run(t, seed)
				waits = append(waits, w)
				if w > 2*time.Second {
					over++
				}
			}
			slices.Sort(waits)
			p90 := waits[kills*9/10]
			t.Logf("%+v, %d kills: longest wait of a survivor's request: median %v, p90 %v, worst %v; above 2 s: %d",
				l, kills, waits[kills/2], p90, waits[kills-1], over)
			if over > 0 || p90 > 300*time.Millisecond {
				t.Errorf("%+v: after %d of %d kills a survivor's request waited for more than 2 s; p90 is %v, want at most 300ms", l, over, kills, p90)
			}
		}
	}
}

// killed is a cluster of which a gateway is killed.
type killed struct {
	nodes int
	load  float64       // share of the tokens that is used
	hold  time.Duration // mean
	// burst: before the kill nobody comes for seven seconds, after three requests for
	// each token came to one gateway at once.
	burst bool
}

// run returns how long a request waited at most at a gateway that was not killed.
func (l killed) run(t *testing.T, seed uint64) time.Duration {
	const (
		k       = 16
		request = iota
		kill
	)
	type asked struct {
		*cluster.Request
		host     int
		at, hold time.Duration
	}
	r := rand.New(rand.NewPCG(seed, uint64(l.nodes)))
	victim := r.IntN(l.nodes)
	when := 10*time.Second + time.Duration(r.Int64N(int64(time.Second)))
	if l.burst {
		when += 10 * time.Second // since the tokens were spread as the cluster began
	}
	end := when + 16*time.Second
	every := float64(l.hold) / (l.load * k)
	var (
		c     *cluster.Cluster
		open  []asked
		worst time.Duration
	)
	ask := func(host int) {
		hold := time.Duration(r.ExpFloat64() * float64(l.hold))
		open = append(open, asked{c.Request(host, hold, 0), host, c.Now(), hold})
	}
	c = cluster.New(cluster.Config{
		Seed: seed, Hosts: l.nodes, Members: l.nodes, K: k, Network: network.Constant(time.Millisecond),
		Ask: 4 * time.Millisecond * time.Duration(l.nodes), Lease: 3 * time.Second,
		Due: func(arg uint64) {
			switch quiet := when - c.Now(); {
			case arg == kill:
				c.Kill(victim)
				return
			case l.burst && quiet > 0:
				if quiet < 7*time.Second {
					for range 3 * k {
						ask(0)
					}
					c.At(when, request)
					return
				}
			case c.Now() > end-8*time.Second:
				return
			default:
				ask(r.IntN(l.nodes))
			}
			c.At(c.Now()+time.Duration(r.ExpFloat64()*every), request)
		},
	})
	c.At(2*time.Second, request) // when everybody has a lease
	c.At(when, kill)
	for c.Step(end) {
		if err := c.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		open = slices.DeleteFunc(open, func(a asked) bool {
			if a.Outcome() == "served" && a.host != victim && c.Now() > when {
				worst = max(worst, c.Now()-a.at-a.hold)
			}
			return a.Outcome() != ""
		})
	}
	for _, a := range open {
		if wait := c.Now() - a.at - a.hold; a.host != victim && wait > 0 { // else it is being served
			worst = max(worst, wait)
		}
	}
	return worst
}
