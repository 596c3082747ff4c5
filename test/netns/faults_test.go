package netns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/test/cluster"
)

const (
	size  = 5
	k     = 6
	longK = 5
	wideK = 200
	// window in which rates are measured.
	window = time.Second
)

// lease of gateways that faults may well cost it, or a busy machine: what serves later than
// it should does.
var lease = map[bool]time.Duration{false: 3 * time.Second, true: time.Second}[cluster.Soak()]

// healed is how long after the end of a fault at most all is as before.
var healed = 2*lease + time.Second

// world is five gateways under load, in a network that can be cut. Beside the
// pool whose rate is looked at there is one with requests that outlast a lease:
// who is cut off has to break them off before the others get their slots.
type world struct {
	*Network
	cluster *cluster.Cluster
	serving int // gateways, the first ones, that have clients
	judge   *cluster.Judge
	load    *cluster.Load
	long    *cluster.Judge
	// wide is a pool whose batons are longer than a short packet. It is there if
	// widens is set before the start.
	widens bool
	wide   *cluster.Judge
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, New(t, size), lease)
}

// newWorldIn starts the gateways in a network, with a lease.
func newWorldIn(t *testing.T, nw *Network, lease time.Duration) *world {
	t.Helper()
	return startWorld(t, nw, cluster.Options{Gateways: size, Lease: lease})
}

// startWorld starts gateways in a network, and clients at those that are no witness.
func startWorld(t *testing.T, nw *Network, opt cluster.Options) *world {
	t.Helper()
	w := &world{Network: nw}
	w.start(t, opt)
	return w
}

func (w *world) start(t *testing.T, opt cluster.Options) {
	t.Helper()
	w.serving = opt.Gateways
	if opt.Witness {
		w.serving--
	}
	var url, longURL string
	w.judge, url = w.upstream(t, 100*time.Millisecond, 200*time.Millisecond)
	// Some outlast a lease; some do not, so that a slot that is given out too early is seen to be.
	w.long, longURL = w.upstream(t, opt.Lease/4, 3*opt.Lease)
	w.judge.Keep()
	w.long.Keep()
	opt.K, opt.Upstream, opt.Hosts, opt.Dial, opt.Cuts = k, url, w.Hosts, w.Dial, w.Cuts
	opt.Pools = []cluster.Pool{{Name: "long", K: longK, Upstream: longURL}}
	if w.widens {
		var url string
		w.wide, url = w.upstream(t, opt.Lease/3, opt.Lease) // so that it does not count as silent on a busy machine, though requests are aborted
		w.wide.Keep()
		opt.Pools = append(opt.Pools, cluster.Pool{Name: "wide", K: wideK, Upstream: url, Settings: "binding: early"})
	}
	w.cluster = cluster.Start(t, opt)
	w.cluster.WatchStatus(t)
	w.load = cluster.StartLoad(t, w.cluster.Gateways[:w.serving], cluster.LoadOptions{Clients: 12, Dial: w.Dial})
	cluster.StartLoad(t, w.cluster.Gateways[:w.serving], cluster.LoadOptions{Clients: longK, Path: "/long/", Patience: time.Minute, Dial: w.Dial})
	if w.widens {
		cluster.StartLoad(t, w.cluster.Gateways[:w.serving], cluster.LoadOptions{Clients: wideK/w.serving + 4, Path: "/wide/", Patience: time.Minute, Dial: w.Dial})
	}
}

// upstream serves in the namespace outside, and holds each request for a while: requests that begin
// together do not end together.
func (w *world) upstream(t *testing.T, least, most time.Duration) (*cluster.Judge, string) {
	t.Helper()
	l, err := w.Listen()
	if err != nil {
		t.Fatal(err)
	}
	j, _ := cluster.NewJudgeAt(t, l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(least + rand.N(most-least))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}))
	return j, "http://" + l.Addr().String()
}

// scenario is a fault of the network.
type scenario struct {
	name string
	// long ones are for the long run only.
	long bool
	// cut returns what the fault is, and who must refuse soon.
	cut func(r cluster.Roles) (ways []Way, refuse []int)
	// serve is how many gateways go on.
	serve int
	// slow faults are believed only when a link has been down for half a lease,
	// since everybody still renews; or an election comes first.
	slow bool
	// lossy faults slow every connection down.
	lossy bool
	// calm faults stop nobody: no request waits for what is cut off.
	calm bool
}

var scenarios = []scenario{
	{
		name: "the leader and one more are cut off", serve: 3,
		cut: func(r cluster.Roles) ([]Way, []int) { return apart(Drop, r.Leader, other(r.Leader, r.Home)) },
	},
	{
		name: "the home is cut off", serve: 4, long: true,
		cut: func(r cluster.Roles) ([]Way, []int) { return apart(Drop, r.Home) },
	},
	{
		name: "the leader is cut off", serve: 4, long: true,
		cut: func(r cluster.Roles) ([]Way, []int) { return apart(Drop, r.Leader) },
	},
	{
		name: "the home and one more are refused with resets", serve: 3,
		cut: func(r cluster.Roles) ([]Way, []int) { return apart(Reset, r.Home, other(r.Home, r.Leader)) },
	},
	{
		name: "the home hears nobody", serve: 4, long: true,
		cut: func(r cluster.Roles) (ways []Way, refuse []int) {
			for _, from := range Without(size, r.Home) {
				ways = append(ways, Way{from, r.Home, Drop})
			}
			return ways, []int{r.Home}
		},
	},
	{
		name: "one does not hear the leader", serve: 4, long: true,
		cut: func(r cluster.Roles) ([]Way, []int) { return []Way{{r.Leader, other(r.Leader), Drop}}, nil },
	},
	{
		name: "one does not hear another", serve: 4, long: true, slow: true,
		cut: func(r cluster.Roles) ([]Way, []int) {
			a := other(r.Leader)
			return []Way{{a, other(r.Leader, a), Drop}}, nil
		},
	},
	{
		name: "a bridge: two hear everybody but each other", serve: 4, slow: true,
		cut: func(r cluster.Roles) ([]Way, []int) {
			return Split(Drop, []int{r.Home}, []int{other(r.Leader, r.Home)}), nil
		},
	},
	{
		name: "no side has a majority", serve: 0,
		cut: func(cluster.Roles) ([]Way, []int) {
			return Split(Drop, []int{0, 1}, []int{2, 3}, []int{4}), []int{0, 1, 2, 3, 4}
		},
	},
	{
		name: "5 % of all packets are lost", serve: 5, long: true, lossy: true,
		cut: func(cluster.Roles) ([]Way, []int) {
			return Split(Lose(5), []int{0}, []int{1}, []int{2}, []int{3}, []int{4}), nil
		},
	},
}

// apart cuts gateways off from all others.
func apart(v Verdict, list ...int) (ways []Way, refuse []int) {
	return Split(v, list, Without(size, list...)), list
}

// other returns a gateway that is none of these.
func other(list ...int) int { return Without(size, list...)[0] }

// TestFaults cuts the network in many ways, and looks what clients and the
// upstream see.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, s := range scenarios {
		if s.long && !cluster.Soak() || testing.Short() && i > 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) { w.suffer(t, s) })
	}
	w.checkHistory(t)
}

// suffer lets one fault come and go.
func (w *world) suffer(t *testing.T, s scenario) {
	t.Helper()
	cluster.Span(t, window)
	roles, err := w.cluster.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ways, refuse := s.cut(roles)
	before := len(w.judge.Since(time.Now().Add(-window)))

	began := time.Now()
	w.Set(t, ways...)
	cut := time.Now()
	cluster.Span(t, cluster.Whole(lease))
	if s.slow {
		cluster.Span(t, lease)
	}
	// Within a window, and later ones if the machine has other work.
	late := time.Now()
	arrived, serve := 0, ""
	for now := late; ; late = now {
		cluster.Span(t, window)
		now = time.Now()
		served := cluster.Served(w.load.Since(late), now)
		arrived, serve = len(w.judge.Since(late)), fmt.Sprint(served)
		if len(served) == s.serve {
			break
		}
		if now.Sub(cut) > timing.Slack()*(cluster.Whole(lease)+2*lease) {
			t.Errorf("not %d gateways serve, but %s", s.serve, serve)
			break
		}
	}
	gap := cluster.Gap(w.judge.Since(began), began, time.Now())
	t.Logf("%d requests in %v, %d before; none for %v; served %s; roles:%s", arrived, window, before, gap.Round(time.Millisecond), serve, w.describe(roles))
	if s.calm {
		timing.Within(t, "no request", gap, lease/4)
	}
	least := before * 8 / 10
	if s.lossy {
		least = before / 3
	}
	if s.serve > 0 && arrived < least && cluster.Soak() {
		t.Errorf("%d requests in %v, before the fault %d", arrived, window, before)
	}
	for _, i := range refuse {
		w.checkRefusal(t, i, w.load.Since(began), cut)
	}
	heal := time.Now()
	w.Heal(t)
	w.awaitWhole(t, heal)
	w.checkK(t)
}

func (w *world) describe(r cluster.Roles) (text string) {
	for i := range w.Hosts {
		if role := r.Of(i); role != "" {
			text += fmt.Sprintf(" %d%s", i+1, role)
		}
	}
	return text
}

// checkRefusal holds that a gateway which is cut off refuses, and says why, when
// its lease is over.
func (w *world) checkRefusal(t *testing.T, i int, answers []cluster.Answer, cut time.Time) {
	t.Helper()
	const reaction = 200 * time.Millisecond
	name := w.cluster.Gateways[i].Name
	var refused, served time.Duration
	for _, a := range answers {
		switch {
		case a.Gateway != name:
		case a.Result == cluster.OK:
			served = a.Done.Sub(cut)
		case a.Result == "isolated" && refused == 0:
			refused = a.Done.Sub(cut)
		}
	}
	if refused == 0 {
		t.Errorf("%s, cut off, has not refused; served up to %v; %s", name, served, cluster.Refusals(answers))
	}
	timing.Within(t, name+", cut off, refused", refused, lease+reaction)
	timing.Within(t, name+", cut off, served for", served, lease+reaction)
}

// awaitWhole waits until every gateway serves and all slots are in use again.
func (w *world) awaitWhole(t *testing.T, heal time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timing.Slack()*(healed+time.Second))
	defer cancel()
	var whole time.Duration
	err := cluster.Await(ctx, func() error {
		served := make(map[string]bool)
		for _, a := range w.load.Since(heal) {
			if a.Result == cluster.OK && a.Sent.After(heal) {
				served[a.Gateway] = true
			}
			if len(served) == w.serving {
				whole = a.Done.Sub(heal)
				break
			}
		}
		if len(served) < w.serving {
			return fmt.Errorf("after the fault only %d gateways serve: %v", len(served), served)
		}
		arrivals := w.judge.Since(heal.Add(whole))
		i := slices.IndexFunc(arrivals, func(a cluster.Arrival) bool { return a.InFlight >= k })
		if i < 0 {
			return fmt.Errorf("not all slots are in use after the fault, at most %d", mostInFlight(arrivals))
		}
		whole = arrivals[i].At.Sub(heal)
		return nil
	})
	if err != nil {
		w.cluster.LogPools(t)
		t.Fatal(err)
	}
	timing.Within(t, "whole after the end of the fault", whole, healed)
}

func mostInFlight(arrivals []cluster.Arrival) int {
	most := 0
	for _, a := range arrivals {
		most = max(most, a.InFlight)
	}
	return most
}

func (w *world) checkK(t *testing.T) {
	t.Helper()
	if _, most, _ := w.judge.Counts(); most != k {
		t.Errorf("most in flight at the upstream is %d, k is %d", most, k)
	}
	if _, most, _ := w.long.Counts(); most != longK {
		t.Errorf("most long requests in flight at the upstream is %d, k is %d", most, longK)
	}
}

func (w *world) checkHistory(t *testing.T) {
	t.Helper()
	w.judge.CheckHistory(t, cluster.PoolName, k)
	w.long.CheckHistory(t, "long", longK)
}

// TestFlapping has connections come and go all the time.
func TestFlapping(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	during := 4 * time.Second
	if cluster.Soak() {
		during = time.Minute
	}
	w := newWorld(t)
	cluster.Span(t, window)
	roles, err := w.cluster.Roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ways, _ := apart(Drop, roles.Leader, other(roles.Leader, roles.Home))
	began := time.Now()
	w.Flap(t, 500*time.Millisecond, during, ways...)
	heal := time.Now()
	arrivals := w.judge.Since(began)
	t.Logf("%d requests in %v of flapping, %.0f/s; none for %v", len(arrivals), during, float64(len(arrivals))/during.Seconds(),
		cluster.Gap(arrivals, began, heal).Round(time.Millisecond))
	if len(arrivals) == 0 {
		t.Error("nobody was served")
	}
	w.awaitWhole(t, heal)
	w.checkK(t)
	w.checkHistory(t)
}
