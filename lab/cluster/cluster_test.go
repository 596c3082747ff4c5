package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

const (
	leaseTime = 3 * time.Second
	hosts     = 5
	k         = 4
)

// start runs a cluster in which each gateway always has a few requests.
func start(t *testing.T, early bool) *cluster.Cluster {
	t.Helper()
	var c *cluster.Cluster
	const every = 10 * time.Millisecond
	c = cluster.New(cluster.Config{
		Seed: 1, Hosts: hosts, Members: hosts, K: k, Early: early,
		Network: network.Constant(time.Millisecond), Ask: 20 * time.Millisecond,
		Lease: leaseTime,
		Due: func(n uint64) {
			c.Request(int(n%hosts), 30*time.Millisecond, 0)
			c.At(c.Now()+every, n+1)
		},
	})
	c.At(0, 0)
	run(t, c, time.Second)
	return c
}

func run(t *testing.T, c *cluster.Cluster, d time.Duration) {
	t.Helper()
	for end := c.Now() + d; c.Step(end); {
		if err := c.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without faults nobody is suspected, and the tokens are busy.
func TestQuiet(t *testing.T) {
	c := start(t, false)
	run(t, c, time.Minute)
	if err := c.Settled(nil); err != nil || c.Pool().Epoch != 1 {
		t.Errorf("epoch %d: %v", c.Pool().Epoch, err)
	}
	if most, apart := c.Most(); most != k || apart != 0 || c.Served() < 5000 {
		t.Errorf("at most %d at the upstream, %d served", most, c.Served())
	}
}

// A killed gateway: when its lease must have run out all tokens are back. How long
// the line stands still before depends on how many tokens are left: what looks for
// the baton at the lost gateway is withheld like what the gateway had.
func TestKill(t *testing.T) {
	const whole = leaseTime*11/10 + time.Second
	for _, early := range []bool{false, true} {
		for host := range hosts {
			c := start(t, early)
			c.Kill(host)
			lost, before := c.Now(), 0
			for before != c.Served() && c.Now()-lost < whole {
				before = c.Served()
				run(t, c, 100*time.Millisecond)
			}
			still := c.Now() - lost
			for before == c.Served() && c.Now()-lost < whole {
				run(t, c, 10*time.Millisecond)
			}
			t.Logf("early %t, host %d lost: stands still from %v to %v after the loss", early, host, still, c.Now()-lost)
			run(t, c, max(0, lost+whole-c.Now()))
			w, formed := c.Whole()
			if !formed || len(c.Pool().Owed) > 0 {
				t.Fatalf("host %d: %v is owed", host, c.Pool().Owed)
			}
			if err := w.Check(); err != nil || w.Tokens.Len() != k {
				t.Errorf("host %d: %d tokens: %v", host, w.Tokens.Len(), err)
			}
		}
	}
}

// On the smaller side of a partition nobody is served once the leases are over, on
// the larger one everybody; afterwards all are back.
func TestPartition(t *testing.T) {
	c := start(t, false)
	cut := func(do func(a, b int)) {
		for _, a := range []int{0, 1} { // host 0 leads at first
			for b := 2; b < hosts; b++ {
				do(a, b)
				do(b, a)
			}
		}
	}
	cut(c.Cut)
	run(t, c, leaseTime*11/10+2*time.Second)
	var minority, majority *cluster.Request
	c.At(c.Now()+time.Millisecond, 0)
	minority, majority = c.Request(1, time.Millisecond, 0), c.Request(3, time.Millisecond, 0)
	run(t, c, 2*time.Second)
	if minority.Outcome() != "refused" || majority.Outcome() != "served" {
		t.Errorf("minority: %q, majority: %q", minority.Outcome(), majority.Outcome())
	}
	cut(c.Heal)
	run(t, c, 3*time.Second)
	if err := c.Settled(nil); err != nil {
		t.Error(err)
	}
}

// A paused gateway loses its place, does nothing with what it finds on waking, and
// comes back as another incarnation.
func TestPause(t *testing.T) {
	for host := range hosts {
		c := start(t, false)
		c.Pause(host)
		run(t, c, 8*time.Second)
		c.Resume(host)
		run(t, c, 2*time.Second)
		if err := c.Settled(nil); err != nil {
			t.Errorf("host %d: %v", host, err)
		}
	}
}

// A gateway to which round trips take too long for a lease goes once, and is not let in while that lasts: however long it
// does, the others wait for it no second time.
func TestSlowGateway(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, slow := range []int{0, 1, 3} { // 0 leads at first, and 3 would be the home again and again
			for _, delay := range []time.Duration{leaseTime / 3, leaseTime / 2, leaseTime} {
				c := start(t, early)
				run(t, c, leaseTime)
				each := func(d time.Duration) {
					for other := range hosts {
						if other != slow {
							c.Slow(slow, other, d)
							c.Slow(other, slow, d)
						}
					}
				}
				each(delay)
				began, served := c.Now(), c.Served()
				for last := began; c.Now() < began+20*leaseTime; {
					if run(t, c, 50*time.Millisecond); c.Served() > served {
						last, served = c.Now(), c.Served()
					}
					if still := c.Now() - last; still > 2*leaseTime {
						t.Errorf("early %t, host %d, %v: nobody is served from %v to %v after that", early, slow, delay, last-began, c.Now()-began)
						break
					}
				}
				if epoch := c.Pool().Epoch; epoch > 4 {
					t.Errorf("early %t, host %d, %v: epoch %d", early, slow, delay, epoch)
				}
				each(0)
				run(t, c, 2*leaseTime)
				if err := c.Settled(nil); err != nil {
					t.Errorf("early %t, host %d, %v: %v", early, slow, delay, err)
				}
			}
		}
	}
}

// A gateway that leaves loses nothing, and a gateway that joins serves.
func TestLeaveAndJoin(t *testing.T) {
	c := start(t, false)
	c.Leave(2)
	run(t, c, 2*time.Second)
	if !c.Left(2) || len(c.View().Members) != hosts-1 || len(c.Pool().Owed) > 0 {
		t.Errorf("%+v", c.View())
	}
}

// The fuzz can let something happen next to every message of the machines.
func TestKinds(t *testing.T) {
	listed := append(cluster.Kinds(true), cluster.Kinds(false)...)
	for kind := kmutex.Kind(1); kind.Valid(); kind++ {
		if !slices.Contains(listed, kind.String()) {
			t.Errorf("%q is not listed", kind)
		}
	}
	sent := map[string]bool{}
	for _, early := range []bool{true, false} {
		c := start(t, early)
		c.Watch(func(_ int, kind string) { sent[kind] = true }, func(int, string) {})
		run(t, c, 5*time.Second)
		for kind := range sent {
			if !slices.Contains(cluster.Kinds(early), kind) {
				t.Errorf("early %t: %q is sent and not listed", early, kind)
			}
		}
		clear(sent)
	}
}

// One of three gateways is lost for longer than it counts as away, and then another: the leader or the
// follower. When the first is back, it and the third go on: within a lease and a second, and with the
// tokens of the second when its lease is over, as the next leader counts it.
func TestTwoOfThreeAreEnough(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, second := range []bool{true, false} {
			c := cluster.New(cluster.Config{
				Seed: 1, Hosts: 3, Members: 3, K: k, Network: network.Constant(time.Millisecond), Ask: 20 * time.Millisecond,
				Lease: leaseTime,
			})
			kill := func(leads bool) int {
				voters, _ := c.Voters()
				host := voters[slices.IndexFunc(voters, func(v int) bool { return c.Alive(v) && (v == c.Leads()) == leads })]
				c.Kill(host)
				return host
			}
			run(t, c, time.Second)
			one := kill(first)
			run(t, c, 75*time.Second)
			if got, _ := c.Voters(); len(got) != 3 {
				t.Fatalf("one of three is lost, and %v vote", got)
			}
			two := kill(second)
			run(t, c, 5*time.Second)
			c.Start(one)
			run(t, c, leaseTime+time.Second+leaseTime*11/10+time.Second)
			for host := range 3 {
				if host == two {
					continue
				}
				r := c.Request(host, time.Millisecond, 0)
				if run(t, c, time.Second); r.Outcome() != "served" {
					t.Errorf("led %t, then led %t: a request at %d is %q", first, second, host, r.Outcome())
				}
			}
		}
	}
}

// Hosts are lost for good one after the other, and others come in their place: the lost hosts do not keep
// their votes.
func TestNewcomersVote(t *testing.T) {
	const all = 12
	c := cluster.New(cluster.Config{
		Seed: 1, Hosts: all, Members: 3, K: k, Network: network.Constant(time.Millisecond), Ask: 20 * time.Millisecond,
		Lease: leaseTime,
	})
	run(t, c, time.Second)
	for host := range all - 3 {
		c.Kill(host)
		run(t, c, 10*time.Second)
		c.Start(host + 3)
		run(t, c, 10*time.Second)
		got, _ := c.Voters()
		if slices.Sort(got); !slices.Equal(got, []int{host + 1, host + 2, host + 3}) {
			t.Fatalf("%d is gone and %d has come: %v vote", host, host+3, got)
		}
	}
	// One whose place was taken comes back: an even number of votes is worth nothing.
	c.Start(0)
	run(t, c, 10*time.Second)
	if got, _ := c.Voters(); len(got) != 3 || len(c.View().Members) != 4 {
		t.Errorf("%v vote, members %v", got, c.View().Members)
	}
}
