package cluster_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

var (
	scaleHosts = flag.Int("scale.hosts", 60, "how many gateways TestChurnAtScale has")
	scaleFor   = flag.Duration("scale.for", 2*time.Minute, "how long it lets them come and go, in virtual time")
)

// Many gateways that come and go: each is killed about once an hour and started
// again half a minute later. No request at a living gateway is lost, the upstream
// never sees more than k, and in the end everything is whole. The log has what a
// loss costs.
func TestChurnAtScale(t *testing.T) {
	const (
		slots   = 16
		hold    = 100 * time.Millisecond
		every   = 10 * time.Millisecond // between two requests
		session = time.Hour
		away    = 30 * time.Second
		settle  = time.Second
	)
	n := *scaleHosts
	r := rand.New(rand.NewPCG(1, uint64(n)))
	const (
		request = iota
		kill
		start
	)
	type asked struct {
		*cluster.Request
		host  int
		boots int
		at    time.Duration
		fresh bool // its gateway has just been started, and may not be let in yet
	}
	var (
		c        *cluster.Cluster
		requests []asked
		boots    = make([]int, n)
		started  = make([]time.Duration, n)
		kills    int
		last     time.Duration
		gaps     []time.Duration // longest time without a grant after each kill
		sent     = make(map[string]int)
		loss     = time.Duration(float64(session) / float64(n))
	)
	if n < 200 {
		loss = 10 * time.Second // or there would be none
	}
	running := true
	c = cluster.New(cluster.Config{
		Seed: 1, Hosts: n, Members: n, K: slots, Network: network.Constant(time.Millisecond),
		Ask: 4 * time.Millisecond * time.Duration(n), Lease: 3 * time.Second,
		Due: func(arg uint64) {
			host := int(arg >> 8)
			switch arg & 255 {
			case request:
				if !running {
					return
				}
				host = r.IntN(n)
				fresh := started[host] > 0 && c.Now()-started[host] < settle
				requests = append(requests, asked{c.Request(host, hold, 0), host, boots[host], c.Now(), fresh})
				c.At(c.Now()+every, request)
			case kill:
				if !running {
					return
				}
				if host = r.IntN(n); c.Runs(host) {
					kills++
					boots[host]++
					gaps = append(gaps, 0)
					c.Kill(host)
					c.At(c.Now()+away, uint64(host)<<8|start)
				}
				c.At(c.Now()+time.Duration(r.ExpFloat64()*float64(loss)), kill)
			case start:
				c.Start(host)
				started[host] = c.Now()
			}
		},
	})
	c.Watch(func(_ int, kind string) { sent[kind]++ }, func(int, string) {})
	c.At(2*time.Second, request) // when everybody has a lease
	c.At(5*time.Second, kill)
	step := func(end time.Duration) {
		served := c.Served()
		for c.Step(end) {
			if err := c.Err(); err != nil {
				t.Fatal(err)
			}
			if now := c.Served(); now != served {
				served, last = now, c.Now()
			} else if len(gaps) > 0 && running {
				gaps[len(gaps)-1] = max(gaps[len(gaps)-1], c.Now()-last)
			}
		}
	}
	step(*scaleFor)
	running = false
	step(*scaleFor + 2*time.Minute)

	lost, refused := 0, 0
	for _, a := range requests {
		switch out := a.Outcome(); {
		case out == "served", out == "nobody there", boots[a.host] != a.boots:
		case out == "refused" && a.fresh:
			refused++
		default:
			lost++
			if lost < 5 {
				t.Errorf("a request at gateway %d, which was never killed after it: %q (boots %d, started %v, asked %v)", a.host, out, a.boots, started[a.host], a.at)
			}
		}
	}
	most, _ := c.Most()
	if most > slots || lost > 0 {
		t.Errorf("at most %d at the upstream (k %d), %d requests lost at living gateways", most, slots, lost)
	}
	if err := c.Settled(nil); err != nil {
		t.Error(err)
	}
	slices.Sort(gaps)
	t.Logf("%d gateways, %d kills, %d epochs, %d requests, %d served, %d refused by gateways not yet let in, none lost at a living one; most at the upstream %d of %d",
		n, kills, c.Pool().Epoch, len(requests), c.Served(), refused, most, slots)
	t.Logf("longest time without an answer of the upstream after a kill (holds %v): median %v, p90 %v, worst %v", hold,
		gaps[len(gaps)/2], gaps[len(gaps)*9/10], gaps[len(gaps)-1])
	t.Logf("for each kill, with its return: %d reports and answers, %d of all messages", (sent["report"]+sent["answer"])/max(kills, 1), total(sent)/max(kills, 1))
}

func total(sent map[string]int) (sum int) {
	for _, n := range sent {
		sum += n
	}
	return sum
}
