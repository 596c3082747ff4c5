package cluster_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/cluster"
	"github.com/kgate/kgate/lab/network"
)

const ms = time.Millisecond

// row is a row of docs/guarantees.md's contract: what happens, and for how long nobody may be served at the gateways that
// it does not concern, while the clients of all want more slots than there are.
type row struct {
	name string
	do   func(p *play) (concerns []int)
	// most follows from the lease; home is what it is instead in late binding if the pool's home is among those concerned,
	// to which released tokens go.
	most, home func(lease time.Duration) time.Duration
}

// leases returns a bound of num/den leases and some more.
func leases(num, den int64, more time.Duration) func(time.Duration) time.Duration {
	return func(lease time.Duration) time.Duration { return lease*time.Duration(num)/time.Duration(den) + more }
}

// leaseOver is when the lease of a gateway has run out that may have led: as the next leader counts it.
var leaseOver = leases(5, 3, time.Second)

var contract = []row{
	{"a process is killed", func(p *play) []int { return p.one(p.any(), p.c.Kill) }, leases(0, 1, 2*time.Second), nil},
	{"a host disappears", func(p *play) []int { return p.one(p.any(), p.crash) }, leases(5, 6, 500*ms), leaseOver},
	{"a process is paused", func(p *play) []int { return p.one(p.any(), p.c.Pause) }, leases(5, 6, 500*ms), leaseOver},
	{"a gateway stalls again and again", func(p *play) []int {
		one := p.any()
		for i := range 6 {
			p.after(time.Duration(i)*p.lease, func() { p.c.Pause(one) })
			p.after(time.Duration(i)*p.lease+p.lease/4, func() { p.c.Resume(one) })
		}
		return []int{one}
	}, leases(1, 4, 500*ms), nil},
	{"a restart under the same name", func(p *play) []int {
		one := p.any()
		p.c.Kill(one)
		p.after(100*ms, func() { p.c.Start(one) })
		return []int{one}
	}, leases(0, 1, 2*time.Second), nil},
	{"a partition", func(p *play) []int {
		a := p.any()
		two := []int{a, p.any(a)}
		p.ways(two, p.but(two...), p.c.Cut)
		return two
	}, leaseOver, nil}, // the two may have all tokens
	{"one link is broken", func(p *play) []int { return p.link(p.c.Cut) }, leases(3, 2, 0), leaseOver},
	{"one link is broken one way", func(p *play) []int {
		a := p.any()
		b := p.any(a)
		p.c.Cut(a, b)
		return []int{a, b}
	}, leases(3, 2, 0), leaseOver},
	{"several links are broken", func(p *play) []int {
		a := p.any()
		b := p.any(a)
		p.ways([]int{a}, []int{b, p.any(a, b)}, p.c.Cut)
		return []int{a}
	}, leases(2, 1, 3*time.Second), nil},
	{"long packets are lost", func(p *play) []int { return p.link(p.c.Narrow) }, leases(5, 3, 500*ms), leases(2, 1, time.Second)},
	{"a leader's long packets are lost", func(p *play) []int {
		l := p.c.Leads()
		p.ways([]int{l}, p.but(l), p.c.Narrow)
		return []int{l}
	}, leases(2, 1, 500*ms), leases(7, 3, time.Second)},
	{"no new connections", func(p *play) []int {
		both := p.link(p.c.Bar)
		p.c.Break(both[0], both[1])
		return both
	}, leases(11, 10, time.Second), leases(2, 1, time.Second)},
	{"the leader is slow", func(p *play) []int { return p.slow(p.c.Leads(), 3) }, leases(1, 1, 500*ms), leases(2, 1, 0)},
	{"the leader hears nobody", func(p *play) []int {
		l := p.c.Leads()
		for _, o := range p.but(l) {
			p.c.Cut(o, l)
		}
		return []int{l}
	}, leases(1, 1, 500*ms), leases(2, 1, 0)},
	{"the leader's disk hangs", func(p *play) []int { return p.one(p.c.Leads(), p.hang) }, leases(1, 1, 500*ms), leases(2, 1, 0)},
	{"no packet passes anywhere for half a lease", func(p *play) []int {
		p.ways(p.but(), p.but(), p.c.Cut)
		p.after(p.lease/2, func() { p.ways(p.but(), p.but(), p.c.Heal) })
		return nil
	}, leases(1, 2, time.Second), nil},
	{"another gateway's disk hangs, and views come", func(p *play) []int {
		p.after(p.lease/2, p.c.Recover)
		return p.one(p.any(p.c.Leads()), p.hang)
	}, leases(3, 5, 500*ms), leases(17, 10, 500*ms)},
	{"round trips to one gateway are long", func(p *play) []int { return p.slow(p.any(), 2) }, leases(2, 1, 0), nil},
	{"one leaves", func(p *play) []int { return p.one(p.any(), p.c.Leave) }, leases(0, 1, 500*ms), nil},
	{"k is set", func(p *play) []int { p.c.SetK(p.c.Pool().K + 2 - 4*p.r.IntN(2)); return nil }, leases(0, 1, 500*ms), nil},
}

// TestContract judges for how long the line stands still at most.
func TestContract(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	for _, r := range contract {
		for _, early := range []bool{false, true} {
			for _, lease := range []time.Duration{time.Second, 3 * time.Second} {
				var worst, bound time.Duration
				for seed := range seeds {
					p := newPlay(t, seed, early, lease)
					p.run(8*time.Second + time.Duration(p.r.Int64N(int64(lease))))
					home := p.home()
					p.concerns = r.do(p)
					most := r.most(lease)
					if r.home != nil && !early && slices.Contains(p.concerns, home) {
						most = r.home(lease)
					}
					p.last, p.gap = p.c.Now(), 0
					p.run(4*lease + 2*time.Second)
					gap := max(p.gap, p.c.Now()-p.last)
					if worst = max(worst, gap); worst == gap {
						bound = most
					}
					if gap > most {
						t.Errorf("%s, early %t, lease %v, seed %d: nobody is served for %v, want %v (concerned %v, home %d)", r.name, early, lease, seed, gap, most, p.concerns, home)
					}
				}
				t.Logf("%s, early %t, lease %v: %v at worst (%v)", r.name, early, lease, worst.Round(10*ms), bound.Round(10*ms))
			}
		}
	}
}

// play is a cluster at each of whose gateways four clients always ask.
type play struct {
	t        *testing.T
	c        *cluster.Cluster
	r        *rand.Rand
	lease    time.Duration
	do       []func() // by argument of a timer
	open     [hosts][4]*cluster.Request
	concerns []int
	// last is when somebody was served at the others, and gap the longest time without that.
	last, gap time.Duration
}

func newPlay(t *testing.T, seed uint64, early bool, lease time.Duration) *play {
	p := &play{t: t, r: rand.New(rand.NewPCG(seed, 1)), lease: lease}
	p.c = cluster.New(cluster.Config{
		Seed: seed, Hosts: hosts, Members: hosts, K: 6, Early: early, Network: network.Uniform{Low: ms / 2, High: 2 * ms},
		Ask: 4 * hosts * ms, Lease: lease, Due: func(arg uint64) { p.do[arg]() },
	})
	return p
}

func (p *play) after(d time.Duration, do func()) {
	p.do = append(p.do, do)
	p.c.At(p.c.Now()+d, uint64(len(p.do)-1))
}

// run lets time pass.
func (p *play) run(d time.Duration) {
	p.t.Helper()
	for end := p.c.Now() + d; p.c.Now() < end; {
		p.after(5*ms, func() {}) // so that there is something to step to
		run(p.t, p.c, 5*ms)
		for host := range p.open {
			for i, r := range p.open[host] {
				if r != nil && r.Outcome() == "" {
					continue
				}
				if r != nil && r.Outcome() == "served" && !slices.Contains(p.concerns, host) {
					p.gap = max(p.gap, p.c.Now()-p.last-r.Hold)
					p.last = p.c.Now()
				}
				p.open[host][i] = p.c.Request(host, 50*ms+time.Duration(p.r.ExpFloat64()*float64(50*ms)), 0)
			}
		}
	}
}

// but returns all hosts but some.
func (p *play) but(some ...int) (others []int) {
	for h := range hosts {
		if !slices.Contains(some, h) {
			others = append(others, h)
		}
	}
	return others
}

// any returns a random host that is not listed.
func (p *play) any(not ...int) int {
	others := p.but(not...)
	return others[p.r.IntN(len(others))]
}

func (p *play) home() int {
	for _, m := range p.c.View().Members {
		if m.Node == p.c.Pool().Home {
			n, _ := strconv.Atoi(m.Name[len("gw-"):])
			return n - 1
		}
	}
	return -1
}

func (p *play) crash(host int) { p.c.Host(host).Crash() }
func (p *play) hang(host int)  { p.c.Host(host).Hang() }

// one does something to one host.
func (p *play) one(host int, do func(host int)) []int { do(host); return []int{host} }

// ways does something to each way between two hosts, one of each list.
func (p *play) ways(some, others []int, do func(from, to int)) {
	for _, a := range some {
		for _, b := range others {
			if a != b {
				do(a, b)
				do(b, a)
			}
		}
	}
}

// link does something to both ways between two hosts.
func (p *play) link(do func(from, to int)) []int {
	a := p.any()
	b := p.any(a)
	p.ways([]int{a}, []int{b}, do)
	return []int{a, b}
}

// slow adds a part of the lease to each way from and to a host.
func (p *play) slow(host int, part time.Duration) []int {
	p.ways([]int{host}, p.but(host), func(from, to int) { p.c.Slow(from, to, p.lease/part) })
	return []int{host}
}
