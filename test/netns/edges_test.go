package netns

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/test/cluster"
)

const (
	// moving is the longest time without a request at the upstream, also while
	// the fault lasts.
	moving = 2500 * time.Millisecond
	// holding is how long a fault is looked at.
	holding = 6 * time.Second
	// idle is longer than a gateway keeps connections that nobody uses: those
	// that live on are in use.
	idle = 11 * time.Second
)

// edge is a fault that leaves a majority of the gateways with full connections
// to each other, so that the line must go on while it lasts.
type edge struct {
	name string
	// ordinary ones are in every run, the others in the long one.
	ordinary bool
	// wide ones have a pool whose batons are long.
	wide bool
	// begin sets the fault, and returns from when on the line has to move, and
	// which gateway it has killed; -1: none.
	begin func(t *testing.T, w *world, r cluster.Roles) (since time.Time, killed int)
	// during is for faults that change: it lasts, and returns with the fault
	// still there. Default: wait for holding.
	during func(t *testing.T, w *world, r cluster.Roles)
}

func edges() (all []edge) {
	for a := range size {
		for b := a + 1; b < size; b++ {
			all = append(all, outage(a, b))
		}
	}
	all = append(all,
		killed("one opens none to the home, another is killed", false, "other", from("limited", "home")),
		killed("one opens none to the leader, another is killed", false, "other", from("limited", "leader")),
		killed("one opens none at all, another is killed", false, "other", from("limited", "all")),
		killed("one opens none at all, the home is killed", true, "home", from("limited", "all")),
		killed("one opens none at all, the leader is killed", false, "leader", from("limited", "all")),
		killed("the leader opens none at all, another is killed", false, "other", from("leader", "all")),
		killed("the home opens none at all, another is killed", false, "other", from("home", "all")),
		killed("all open none to the home, another is killed", false, "other", from("all", "home")),
		killed("all open none to the leader, another is killed", false, "other", from("all", "leader")),
		killed("all open none to one, the home is killed", false, "home", from("all", "limited")),
		killed("all open none to one, the leader is killed", false, "leader", from("all", "limited")),
		flapping("home", "other", 250*time.Millisecond, false),
		flapping("home", "other", 700*time.Millisecond, true),
		flapping("leader", "other", 250*time.Millisecond, false),
		flapping("leader", "other", 700*time.Millisecond, false),
		flapping("limited", "other", 500*time.Millisecond, false),
		deaf("limited", "other", true),
		deaf("leader", "other", false),
		deaf("other", "leader", false),
		deaf("home", "other", false),
		deaf("other", "home", false),
		deaf("home", "leader", false),
		deaf("leader", "home", false),
		narrow("all", "limited", 600, "other", true),
		narrow("home", "all", 600, "other", false),
		narrow("all", "home", 600, "other", false),
		narrow("leader", "all", 600, "other", false),
		narrow("all", "leader", 600, "other", false),
		narrow("leader", "all", 300, "other", false),
		narrow("limited", "all", 1300, "home", false),
		narrow("all", "limited", 1300, "leader", false),
	)
	ends := []string{"home", "leader", "limited", "other"}
	for _, a := range ends {
		for _, b := range ends {
			if a != b {
				all = append(all, narrow(a, b, 600, "", false), narrow(a, b, 600, "third", a == "home" && b == "limited"))
			}
		}
	}
	return all
}

// parts names gateways by what they are: three of them, limited, other and third, are
// nothing in particular.
func parts(r cluster.Roles) map[string][]int {
	rest := Without(size, r.Leader, r.Home)
	return map[string][]int{
		"leader": {r.Leader}, "home": {r.Home}, "limited": {rest[0]}, "other": {rest[1]}, "third": {rest[2]}, "all": Without(size),
	}
}

// between returns the ways from each of one part to each of another.
func between(v Verdict, from, to []int) (ways []Way) {
	for _, a := range from {
		for _, b := range to {
			if a != b {
				ways = append(ways, Way{a, b, v})
			}
		}
	}
	return ways
}

// outage cuts everybody off for three leases, then heals all links but one.
func outage(a, b int) edge {
	return edge{
		name:     fmt.Sprintf("an outage, healed except for the link %d-%d", a+1, b+1),
		ordinary: a == 0 && b == 1,
		begin: func(t *testing.T, w *world, _ cluster.Roles) (time.Time, int) {
			w.Set(t, Split(Drop, []int{0}, []int{1}, []int{2}, []int{3}, []int{4})...)
			cluster.Span(t, 3*lease)
			w.Set(t, Split(Drop, []int{a}, []int{b})...)
			return time.Now(), -1
		},
	}
}

func from(from, to string) [2]string { return [2]string{from, to} }

// killed has some gateways open no connections, and then kills one.
func killed(name string, ordinary bool, victim string, limit [2]string) edge {
	return edge{name: name, ordinary: ordinary, begin: func(t *testing.T, w *world, r cluster.Roles) (time.Time, int) {
		p := parts(r)
		w.Set(t, between(NoNew, p[limit[0]], p[limit[1]])...)
		cluster.Span(t, idle)
		i := p[victim][0]
		since := time.Now()
		if err := w.cluster.Gateways[i].Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return since, i
	}}
}

// narrow loses packets of more than so many bytes from some gateways to others, and then
// kills a victim, unless that is empty: reports and answers of the epoch that follows are
// long.
func narrow(from, to string, bytes int, victim string, ordinary bool) edge {
	name := fmt.Sprintf("packets > %d from %s to %s are lost", bytes, from, to)
	if victim != "" {
		name += ", " + victim + " is killed"
	}
	return edge{name: name, ordinary: ordinary, wide: true, begin: func(t *testing.T, w *world, r cluster.Roles) (time.Time, int) {
		p := parts(r)
		since, i := time.Now(), -1
		w.Set(t, between(Long(bytes), p[from], p[to])...)
		if victim == "" {
			return since, i
		}
		cluster.Span(t, lease/2)
		i = p[victim][0]
		if err := w.cluster.Gateways[i].Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return since, i
	}}
}

// flapping has the link between two gateways come and go.
func flapping(one, two string, every time.Duration, ordinary bool) edge {
	during := 10 * time.Second
	if cluster.Soak() {
		during = time.Minute
	}
	return edge{
		name:     fmt.Sprintf("the link between %s and %s flaps every %v", one, two, every),
		ordinary: ordinary,
		begin:    func(*testing.T, *world, cluster.Roles) (time.Time, int) { return time.Now(), -1 },
		during: func(t *testing.T, w *world, r cluster.Roles) {
			w.Flap(t, every, during, Split(Drop, parts(r)[one], parts(r)[two])...)
		},
	}
}

// deaf has one gateway hear nothing of another, which hears it.
func deaf(speaker, listener string, ordinary bool) edge {
	return edge{
		name:     fmt.Sprintf("%s does not hear %s", listener, speaker),
		ordinary: ordinary,
		begin: func(t *testing.T, w *world, r cluster.Roles) (time.Time, int) {
			since := time.Now()
			w.Set(t, between(Drop, parts(r)[speaker], parts(r)[listener])...)
			return since, -1
		},
	}
}

// TestEdges looks whether the line moves while faults last that hit few links.
func TestEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	var mu sync.Mutex
	var table strings.Builder
	t.Cleanup(func() { t.Logf("longest time without a request, fault lasting:\n%s", table.String()) })
	for _, e := range edges() {
		if !e.ordinary && !cluster.Soak() {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			if !cluster.Soak() { // there the figures count, too
				t.Parallel()
			}
			row := e.test(t)
			mu.Lock()
			defer mu.Unlock()
			table.WriteString(row)
		})
	}
}

// test has the fault come and go, and returns what it did.
func (e edge) test(t *testing.T) (row string) {
	t.Helper()
	w := &world{Network: New(t, size), widens: e.wide}
	w.start(t, cluster.Options{Gateways: size, Lease: lease})
	cluster.Span(t, window)
	roles, err := w.cluster.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	since, killed := e.begin(t, w, roles)
	if e.during != nil {
		e.during(t, w, roles)
	} else {
		cluster.Span(t, holding)
	}
	now := time.Now()
	w.judge.AwaitInFlight(t, "the fault lasts", now, 1, moving)
	arrivals := w.judge.Since(since)
	gap := cluster.Gap(arrivals, since, now)
	serving := len(cluster.Served(w.load.Since(now.Add(-2*window)), now))
	_, most, _ := w.judge.Counts()
	_, mostLong, _ := w.long.Counts()
	row = fmt.Sprintf("%-62s %6.2f s, then %d gateways serve; at most %d and %d in flight\n", e.name, gap.Seconds(), serving, most, mostLong)
	t.Logf("none for %v, %d requests in %v; %d gateways serve; roles:%s", gap.Round(time.Millisecond), len(arrivals), now.Sub(since).Round(time.Millisecond), serving, w.describe(roles))
	timing.Within(t, "no request while the fault lasts", gap, moving)
	if e.wide {
		w.wide.AwaitInFlight(t, "in the wide pool", now, 1, moving)
		timing.Within(t, "none in the wide pool", cluster.Gap(w.wide.Since(since), since, now), moving)
	}
	w.checkBound(t)
	w.Heal(t)
	if killed >= 0 {
		w.cluster.Restart(t, killed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.cluster.AwaitReady(ctx); err != nil {
		t.Error("after the fault:", err)
	}
	w.checkBound(t)
	return row
}

// checkBound holds that there were never more than k in flight.
func (w *world) checkBound(t *testing.T) {
	t.Helper()
	if _, most, _ := w.judge.Counts(); most > k {
		t.Errorf("%d in flight at the upstream, k is %d", most, k)
	}
	if _, most, _ := w.long.Counts(); most > longK {
		t.Errorf("%d long requests in flight at the upstream, k is %d", most, longK)
	}
	if w.wide == nil {
		return
	}
	if _, most, _ := w.wide.Counts(); most > wideK {
		t.Errorf("%d requests of the wide pool in flight at the upstream, k is %d", most, wideK)
	}
}
