package gateway

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// tally counts what clients have had, as an upstream would: slot-seconds since its begin, and for how
// long slots were idle while somebody waited.
type tally struct {
	mu      sync.Mutex
	k       int
	from    time.Time
	had     map[string]time.Duration
	waiting int
	inUse   int
	last    time.Time
	idle    time.Duration // slot-seconds
}

func (c *tally) move(waiting, inUse int) {
	now := time.Now()
	if c.waiting > 0 && now.After(c.from) {
		from := c.last
		if from.Before(c.from) {
			from = c.from
		}
		c.idle += time.Duration(c.k-c.inUse) * now.Sub(from)
	}
	c.last = now
	c.waiting += waiting
	c.inUse += inUse
}

// use is one request of a client that holds its slot for so long.
func (c *tally) use(t *testing.T, n *node, client string, hold time.Duration) {
	c.mu.Lock()
	c.move(1, 0)
	c.mu.Unlock()
	s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1, Client: client})
	c.mu.Lock()
	c.move(-1, 1)
	c.mu.Unlock()
	if err != nil {
		t.Error(err)
		return
	}
	began := time.Now()
	time.Sleep(hold)
	s.Release()
	c.mu.Lock()
	c.move(0, -1)
	if began.Before(c.from) {
		began = c.from
	}
	c.had[client] += max(0, time.Since(began))
	c.mu.Unlock()
}

// demand is a client's: so many requests at a time at each of these gateways.
type demand struct {
	client string
	at     []int
	load   int
	hold   time.Duration
	weight float64
}

// TestFairShares: clients in turn over all gateways have equal shares of the slot-seconds, or by
// their weights, wherever they ask and however long they hold, and no slot is idle for it.
func TestFairShares(t *testing.T) {
	const ms = time.Millisecond
	seeds := uint64(1)
	if os.Getenv("KGATE_SOAK") != "" {
		seeds = 20
	}
	for _, c := range []struct {
		name    string
		clients []demand
	}{
		{"10:1 at one gateway", []demand{{"hog", []int{0}, 100, 50 * ms, 1}, {"small", []int{0}, 10, 50 * ms, 1}}},
		{"10:1 at two", []demand{{"hog", []int{0}, 100, 50 * ms, 1}, {"small", []int{1}, 10, 50 * ms, 1}}},
		{"10:1 at two, far from home", []demand{{"hog", []int{2}, 100, 50 * ms, 1}, {"small", []int{1}, 10, 50 * ms, 1}}},
		{"at three and at one", []demand{{"hog", []int{0, 1, 2}, 34, 50 * ms, 1}, {"small", []int{1}, 10, 50 * ms, 1}}},
		{"holds 1:10 at one", []demand{{"hog", []int{0}, 100, 50 * ms, 1}, {"small", []int{0}, 10, 500 * ms, 1}}},
		{"holds 1:10 at two", []demand{{"hog", []int{0}, 100, 50 * ms, 1}, {"small", []int{1}, 10, 500 * ms, 1}}},
		{"holds 10:1 at one", []demand{{"hog", []int{2}, 100, 500 * ms, 1}, {"small", []int{2}, 10, 50 * ms, 1}}},
		{"holds 10:1 at two", []demand{{"hog", []int{0}, 100, 500 * ms, 1}, {"small", []int{1}, 10, 50 * ms, 1}}},
		{"holds 10:1 at three and one", []demand{{"hog", []int{0, 1, 2}, 34, 500 * ms, 1}, {"small", []int{1}, 10, 50 * ms, 1}}},
		{"weights 3:1 at one", []demand{{"hog", []int{0}, 100, 50 * ms, 1}, {"small", []int{0}, 10, 50 * ms, 3}}},
		{"weights 3:1 at two", []demand{{"hog", []int{0}, 100, 50 * ms, 1}, {"small", []int{1}, 10, 50 * ms, 3}}},
		{"weights 1:3 at two, holds 10:1", []demand{{"hog", []int{0}, 100, 500 * ms, 3}, {"small", []int{1}, 10, 50 * ms, 1}}},
		{"four clients", []demand{{"a", []int{0}, 100, 50 * ms, 1}, {"b", []int{1}, 10, 500 * ms, 1}, {"c", []int{2, 0}, 10, 50 * ms, 1}, {"d", []int{2}, 20, 100 * ms, 1}}},
	} {
		for _, delay := range []time.Duration{100 * time.Microsecond, ms} {
			for seed := range seeds {
				t.Run(fmt.Sprintf("%s, delay %v, seed %d", c.name, delay, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { fairShares(t, c.clients, delay, seed) })
				})
			}
		}
	}
}

func fairShares(t *testing.T, clients []demand, delay time.Duration, seed uint64) {
	const k = 6
	cfg := PoolConfig{Fair: true, Weights: make(map[string]float64)}
	total := 0.0
	for _, d := range clients {
		cfg.Weights[d.client] = d.weight
		total += d.weight
	}
	f := newFleet(t, 3, k, admission.BindingLate, delay, cfg)
	all := f.all()
	count := &tally{k: k, from: time.Now().Add(time.Second), had: make(map[string]time.Duration)}
	// A lead is bounded, so it is a smaller part of a longer time: with more clients it is as large.
	lasts := time.Duration(len(clients)) * 5 * time.Second
	if len(clients) > 2 {
		lasts *= 2
	}
	end := count.from.Add(lasts)
	var wg sync.WaitGroup
	for i, d := range clients {
		for j, at := range d.at {
			for l := range d.load {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(i*1000_000+j*10_000+l)))
					for time.Now().Before(end) {
						count.use(t, all[at], d.client, time.Duration(float64(d.hold)*(0.5+r.Float64())))
					}
				})
			}
		}
	}
	time.Sleep(time.Until(end))
	count.mu.Lock()
	count.move(0, 0)
	sum := time.Duration(0)
	for _, had := range count.had {
		sum += had
	}
	for _, d := range clients {
		share := count.had[d.client].Seconds() / sum.Seconds() * total / d.weight
		t.Logf("%s has %.3f of its share", d.client, share)
		if math.Abs(share-1) > 0.1 {
			t.Errorf("%s has %.3f of its share", d.client, share)
		}
	}
	idle := count.idle.Seconds() / (k * lasts.Seconds())
	if t.Logf("%.1f %% idle while somebody waited", 100*idle); idle > 0.05 {
		t.Errorf("%.1f %% idle while somebody waited", 100*idle)
	}
	count.mu.Unlock()
	wg.Wait()
	f.check()
}

// demands keeps the requests of a test's clients going, with holds of half to one and a half times hold.
type demands struct {
	*testing.T
	*tally
	sync.WaitGroup
	began time.Time
}

// newDemands counts from a time after now.
func newDemands(t *testing.T, k int, from time.Duration) *demands {
	now := time.Now()
	return &demands{T: t, began: now, tally: &tally{k: k, from: now.Add(from), had: make(map[string]time.Duration)}}
}

// keep has a client so many requests at a time at a gateway.
func (d *demands) keep(n *node, client string, load int, hold, from, to time.Duration) {
	for i := range load {
		d.Go(func() {
			time.Sleep(from)
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Since(d.began) < to {
				d.use(d.T, n, client, time.Duration(float64(hold)*(0.5+r.Float64())))
			}
		})
	}
}

// shares returns the part of all slots since the count began that each has had, and that was idle while
// somebody waited.
func (d *demands) shares() (of map[string]float64, idle float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.move(0, 0)
	all := time.Since(d.from).Seconds() * float64(d.k)
	of = make(map[string]float64)
	for client, had := range d.had {
		of[client] = had.Seconds() / all
	}
	return of, d.idle.Seconds() / all
}

// TestFairBegins: who was there before owes nothing for slots that no other one wanted, and who comes has
// no credit, wherever it comes.
func TestFairBegins(t *testing.T) {
	const before, while, hold = time.Minute, 10 * time.Second, 50 * time.Millisecond
	for name, c := range map[string]struct {
		early, late []int // gateways; those of the early ones are each a client's
		load        int   // of each early one before
	}{
		"alone, with all slots":             {[]int{0}, []int{0}, 6},
		"alone, with all slots, elsewhere":  {[]int{0}, []int{2}, 6},
		"one of three":                      {[]int{1}, []int{0, 1, 2}, 3},
		"two that wait, at another gateway": {[]int{0, 1}, []int{2}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, 6, admission.BindingLate, time.Millisecond, PoolConfig{Fair: true})
				all := f.all()
				d := newDemands(t, 6, before)
				for i, at := range c.early {
					d.keep(all[at], fmt.Sprint("early ", i), c.load, hold, 0, before)
					d.keep(all[at], fmt.Sprint("early ", i), 20, hold, before, before+while)
				}
				for _, at := range c.late {
					d.keep(all[at], "late", 20, hold, before, before+while)
				}
				time.Sleep(before + while)
				of, idle := d.shares()
				if late := of["late"] * float64(len(c.early)+1); math.Abs(late-1) > 0.15 || idle > 0.05 {
					t.Errorf("who comes has %.2f of its share; %.1f %% idle", late, 100*idle)
				}
				d.Wait()
			})
		})
	}
}

// TestFairInFlight: who waits for its own requests alone holds back no other client.
func TestFairInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const begin, end, hold = 5 * time.Second, 25 * time.Second, 500 * time.Millisecond
		f := newFleet(t, 3, 8, admission.BindingLate, time.Millisecond, PoolConfig{Fair: true, ClientInFlight: 3})
		d := newDemands(t, 8, begin)
		d.keep(f.all()[0], "at one", 20, hold, 0, end)
		for _, n := range f.all() {
			d.keep(n, "at all", 20, hold, 0, end)
		}
		time.Sleep(end)
		if of, idle := d.shares(); idle > 0.05 {
			t.Errorf("%.1f %% idle; shares %v", 100*idle, of)
		}
		d.Wait()
	})
}

// TestFairHoldsBecomeLong: a client of very short holds has many places in line. When its holds become long
// it is far ahead for once, and then the others have as much.
func TestFairHoldsBecomeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const change, end = 3 * time.Second, 13 * time.Second
		f := newFleet(t, 3, 6, admission.BindingLate, 5*time.Millisecond, PoolConfig{Fair: true})
		all := f.all()
		d := newDemands(t, 6, change)
		d.keep(all[1], "hog", 200, 200*time.Microsecond, 0, change)
		d.keep(all[1], "hog", 200, 500*time.Millisecond, change, end)
		d.keep(all[2], "small", 10, 50*time.Millisecond, change, end)
		time.Sleep(end)
		if of, _ := d.shares(); of["small"] < 0.35 {
			t.Errorf("shares %v", of)
		}
		d.Wait()
	})
}

// TestFairOutOfReach: who waits at a gateway that cannot reach all upstreams, for fewer slots than others
// have, holds nobody back at the other gateways.
func TestFairOutOfReach(t *testing.T) {
	const from, end, hold = 10 * time.Second, 30 * time.Second, 50 * time.Millisecond
	for at := range 3 {
		for name, barred := range map[string][]string{"one of two": {upstreamOf(1)}, "all": {upstreamOf(1), upstreamOf(2)}} {
			t.Run(fmt.Sprintf("%s, gateway %d", name, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newClassedFleet(t, 3, PoolConfig{Fair: true}, 4, 1)
					all := f.all()
					far, one, other := all[at], all[(at+1)%3], all[(at+2)%3]
					far.Bar(testPool, barred)
					d := newDemands(t, 5, from)
					if len(barred) == 1 {
						d.keep(far, "far", 10, hold, 0, end)
					} else if _, err := far.RequestTicket(t.Context(), admission.Request{Pool: testPool, Client: "far"}, time.Minute, ""); err != nil {
						t.Fatal(err)
					}
					d.keep(one, "one", 10, hold, 0, end)
					d.keep(other, "other", 10, hold, 0, end)
					time.Sleep(end)
					if of, idle := d.shares(); math.Abs(of["one"]-of["other"]) > 0.1 || of["one"] < 0.3 || idle > 0.2 { // tokens go along the line
						t.Errorf("shares are %v; %.1f %% idle", of, 100*idle)
					}
					d.Wait()
				})
			})
		}
	}
}

// TestLineOutOfReach: gateways that cannot reach all upstreams, and whose requests wait first in line for a slot of
// another, hold nobody back and favour nobody.
func TestLineOutOfReach(t *testing.T) {
	const from, end, hold = 10 * time.Second, 30 * time.Second, 50 * time.Millisecond
	for sick, most := range map[int]float64{1: 0.1, 2: 0.25} { // idle: a slot goes past each of their batches
		t.Run(fmt.Sprint(sick), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newClassedFleet(t, 2+sick, PoolConfig{}, 4, 1)
				all := f.all()
				for _, far := range all[:sick] {
					far.Bar(testPool, []string{upstreamOf(1)})
				}
				s, err := all[0].Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1}) // the other's only slot
				if err != nil {
					t.Fatal(err)
				}
				d := newDemands(t, 4, from)
				for i := range 5 * sick {
					d.keep(all[i%sick], "far", 1, 0, time.Duration(i)*time.Second, end)
				}
				d.keep(all[sick], "one", 10, hold, 0, end)
				d.keep(all[sick+1], "other", 10, hold, 0, end)
				time.Sleep(end)
				if of, idle := d.shares(); math.Abs(of["one"]-of["other"]) > 0.05 || idle > most {
					t.Errorf("shares are %v; %.1f %% idle", of, 100*idle)
				}
				s.Release()
				d.Wait()
			})
		})
	}
}

// TestLineThatLeft: after a long wait in which most who waited have left, a slot soon comes to those who wait still.
func TestLineThatLeft(t *testing.T) {
	for _, at := range [][]int{{0, 1, 2}, {1}} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lineThatLeft(t, at) })
		})
	}
}

// lineThatLeft has impatient clients come to some of three gateways, and patient ones to the first and the last.
func lineThatLeft(t *testing.T, impatient []int) {
	f := newFleet(t, 3, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
	all := f.all()
	s, err := all[0].Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64 // when the last was that waited to the end, from the start
	began := time.Now()
	var waits sync.WaitGroup
	wait := func(n *node) {
		waits.Go(func() {
			s, err := n.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1})
			if err != nil {
				t.Error(err)
				return
			}
			served.Store(int64(time.Since(began)))
			s.Release()
		})
		time.Sleep(50 * time.Millisecond)
	}
	wait(all[0])
	for i := range 30 {
		waits.Go(func() {
			for time.Since(began) < 10*time.Second {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				if _, err := all[impatient[i%len(impatient)]].Acquire(ctx, admission.Request{Pool: testPool, Wait: -1}); err == nil {
					t.Error("a second slot")
				}
				cancel()
			}
		})
		time.Sleep(3400 * time.Microsecond)
	}
	time.Sleep(10 * time.Second)
	wait(all[2])
	time.Sleep(time.Second)
	at := time.Since(began)
	for i, n := range all {
		p := n.pool(testPool)
		p.mu.Lock()
		if kept := len(p.core.Machine().State().Batches); kept > 300 {
			t.Errorf("gateway %d keeps %d batches of clients that have left", i, kept)
		}
		p.mu.Unlock()
	}
	s.Release()
	waits.Wait()
	if d := time.Duration(served.Load()) - at; d > 100*time.Millisecond {
		t.Errorf("served %v after the slot was free", d)
	}
}

// TestFairNames: clients without end take no memory, at a gateway and at home.
func TestFairNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, 20, admission.BindingLate, time.Millisecond, PoolConfig{Fair: true})
		var wg sync.WaitGroup
		end := time.Now().Add(10 * time.Second)
		for i := range 20 {
			wg.Go(func() {
				for j := 0; time.Now().Before(end); j++ {
					if s, _ := acquire(t, f.all()[1], fmt.Sprintf("client %d of %d", j, i)); s != nil {
						time.Sleep(10 * time.Millisecond)
						s.Release()
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(4 * sharesEvery)
		for i, n := range f.all() {
			p := n.pool(testPool)
			p.mu.Lock()
			if known := len(p.of); known > maxShares {
				t.Errorf("gateway %d remembers %d clients", i, known)
			}
			p.mu.Unlock()
		}
	})
}

// TestSharesOutliveHome: when home is lost, the next one learns from each gateway what that knows, and
// what was told is not counted twice. Without news of home a gateway goes by its own clients.
func TestSharesOutliveHome(t *testing.T) {
	now := time.Now()
	home, here, next := newQueue(), newQueue(), newQueue()
	number := uint64(0)
	tell := func(to *queue) {
		sent := here.tell(map[string]presence{"x": {Waits: true, Owes: 3}})
		number++
		sent.Number = number
		number++

		here.learn(now, sent, to.hear(now, 1, sent, map[string]presence{"y": {Waits: true}}))
	}
	home.share("y").charge(2)
	here.share("x").charge(10)
	tell(home)
	tell(home)
	if x := home.of["x"].served; x != 10 || here.of["x"].served != 10 || here.least != 2 || home.of["x"].elsewhere != 3 || home.least != 13 {
		t.Errorf("home counts %v, the gateway %v, the least is %v", x, here.of["x"].served, here.least)
	}
	here.share("x").charge(1) // home is lost before it is told
	tell(next)
	tell(next)
	if x := next.of["x"].served; x != 11 || here.of["x"].served != 11 {
		t.Errorf("the next home counts %v, the gateway %v", x, here.of["x"].served)
	}
	here.least = 2
	if far, near := here.floor(now, 11), here.floor(now.Add(sharesKeep), 11); far != 2 || near != 11 {
		t.Errorf("the least is %v with news of home, and %v without", far, near)
	}
}

// TestSharesOfStalledHome: home stands still for longer than gateways wait for its answer, and takes in then
// what they have told meanwhile. It counts it once.
func TestSharesOfStalledHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const k, end, hold = 6, 20 * time.Second, 50 * time.Millisecond
		f := newFleet(t, 2, k, admission.BindingLate, time.Millisecond, PoolConfig{Fair: true})
		all := f.all()
		d := newDemands(t, k, 0)
		home, other := all[0], all[1]
		time.Sleep(time.Second)
		if home.Status(testPool).Home != home.self {
			home, other = other, home
		}
		d.keep(other, "x", 2*k, hold, 0, end)
		time.Sleep(end / 2)
		f.mu.Lock()
		home.stalled = time.Now().Add(3500 * time.Millisecond)
		f.mu.Unlock()
		d.Wait()
		time.Sleep(sharesKeep)
		p := home.pool(testPool)
		p.mu.Lock()
		defer p.mu.Unlock()
		// Nobody waits any more: all begin with what the most served one has had.
		if counted, had := p.start, d.had["x"].Seconds(); math.Abs(counted-had) > 0.1 {
			t.Errorf("the client has had %.2f slot-seconds, home has counted %.2f", had, counted)
		}
	})
}

func newQueue() *queue { return &queue{shares: newShares(), bound: -1} }

// TestSharing: operators see what each client has of the slots, over all gateways, and how long it waits.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const end, hold = 2 * time.Minute, 50 * time.Millisecond
		f := newFleet(t, 3, 6, admission.BindingLate, time.Millisecond, PoolConfig{Fair: true, Weights: map[string]float64{"small": 3}})
		all := f.all()
		d := newDemands(t, 6, 0)
		d.keep(all[0], "hog", 30, hold, 0, end)
		d.keep(all[2], "hog", 30, hold, 0, end)
		d.keep(all[1], "small", 10, hold, 0, end)
		time.Sleep(end - time.Second)
		slots, inUse := make(map[string]float64), 0
		for i, n := range all {
			s := n.Status(testPool).Sharing
			if s.Present != 1 || len(s.Most) != 1 {
				t.Fatalf("gateway %d has %+v", i, s)
			}
			of := s.Most[0]
			slots[of.Key] += of.Slots
			inUse += of.InUse
			// Of 30 requests that share 0.75 slots, and 10 that share 4.5, with a hold of 50 ms.
			wait := map[string]time.Duration{"hog": 2 * time.Second, "small": 60 * time.Millisecond}[of.Key]
			weight := map[string]float64{"hog": 1, "small": 3}[of.Key]
			if of.Weight != weight || of.MeanWait < wait/2 || of.MeanWait > 2*wait || of.Oldest <= 0 || of.Oldest > 4*wait || of.Waiting == 0 {
				t.Errorf("gateway %d shows %+v", i, of)
			}
		}
		if math.Abs(slots["hog"]-1.5) > 0.3 || math.Abs(slots["small"]-4.5) > 0.5 || inUse > 6 {
			t.Errorf("slots of late: %v; %d in use", slots, inUse)
		}
		d.Wait()
		time.Sleep(3 * recentFor)
		if s := all[0].Status(testPool).Sharing; len(s.Most)+s.Present > 0 {
			t.Errorf("there are clients when all have left: %+v", s)
		}
		all[0].Configure(map[string]PoolConfig{testPool: {}})
		if s := all[0].Status(testPool).Sharing; s != nil {
			t.Errorf("clients of another order are shown: %+v", s)
		}
	})
}
