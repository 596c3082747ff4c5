package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

const (
	lineK    = 6
	lineHold = 40 * time.Millisecond
)

// lineSplit are the clients of three gateways: 70, 20 and 10 %.
var lineSplit = []int{63, 18, 9}

// lineRun is what a cluster made of a load.
type lineRun struct {
	load *demo.Result
	most int     // in flight at the upstream
	busy float64 // part of its slots
}

// runLine starts as many gateways as there are shares of clients, and has the
// clients ask without pause.
func runLine(t *testing.T, binding string, scv int, split []int, warmup, window time.Duration) func() lineRun {
	t.Helper()
	u, url := ServeUpstream(t, &demo.Upstream{Hold: lineHold, SCV: scv})
	c := Start(t, Options{Gateways: len(split), Name: fmt.Sprintf("gw%dof", len(split)), K: lineK, Upstream: url, Binding: binding})
	var began, ended demo.Stats
	cfg := demo.LoadConfig{
		Warmup: warmup, Duration: window,
		Opened: func() { began = u.Stats() },
		Closed: func() { ended = u.Stats() },
	}
	for i, clients := range split {
		cfg.Targets = append(cfg.Targets, demo.Target{Name: c.Gateways[i].Name, URL: c.Gateways[i].URL(), Clients: clients})
	}
	return func() lineRun {
		r, err := demo.Run(t.Context(), cfg)
		if err != nil {
			t.Error(err)
			return lineRun{}
		}
		return lineRun{r, u.Stats().Max, ended.Busy(began, lineK)} // warm-up and end included in the most
	}
}

func (r lineRun) print(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s: most in flight %d (k %d), busy %.1f %%, %d answers, %d failed", what, r.most, lineK,
		100*r.busy, r.load.Overall.Count, r.load.Overall.Errors)
	for _, s := range append(r.load.Targets, r.load.Overall) {
		t.Logf("    %-8s %5d answers, wait mean %v, p99 %v, max %v, (max-mean)/mean %.3f", s.Name, s.Count,
			s.Mean.Round(time.Millisecond), s.P99.Round(time.Millisecond), s.Max.Round(time.Millisecond), relativeSpread(s))
	}
}

// factor is by how much the mean access times of the gateways' clients differ.
func (r lineRun) factor() float64 {
	least, most := time.Duration(1<<62), time.Duration(0)
	for _, s := range r.load.Targets {
		least, most = min(least, s.Mean), max(most, s.Mean)
	}
	return float64(most) / float64(least)
}

// check holds what every run must show.
func (r lineRun) check(t *testing.T) {
	t.Helper()
	if r.most != lineK {
		t.Errorf("most in flight is %d, not k = %d", r.most, lineK)
	}
	// A line that stands still costs much more. What a hand-over costs is measured in
	// test/bench: with short holds on a small machine it is several percent.
	if Soak() && r.busy < 0.8 {
		t.Errorf("slots are busy %.1f %% of the time", 100*r.busy)
	}
	if r.load.Overall.Errors > 0 || r.load.Overall.Count == 0 {
		t.Errorf("failed by status: %v", r.load.Overall.Failed)
	}
}

// TestOneLine has three gateways with unequal shares of the clients beside one
// gateway with all of them, at the same time, with the same holds. What is exact
// must hold in every round; times are the median of the rounds, because a pause of
// the machine is nobody's unfairness (and under early binding, which has nothing
// that evens queues out again, lasts until the line is empty).
func TestOneLine(t *testing.T) {
	OnlySoak(t, "lab's TestLateIsFair has this in virtual time, TestEmbeddedNode one line with real gateways")
	for _, tt := range []struct {
		binding string
		scv     int
	}{{"late", 0}, {"late", 1}, {"early", 0}} {
		t.Run(fmt.Sprintf("%s,scv=%v", tt.binding, tt.scv), func(t *testing.T) {
			const rounds = 3
			const warmup, window = 2 * time.Second, 20 * time.Second
			three := runLine(t, tt.binding, tt.scv, lineSplit, warmup, window)
			one := runLine(t, tt.binding, tt.scv, []int{90}, warmup, window)
			var factor, spread, alone, more []float64
			for range rounds {
				var runs [2]lineRun
				var wg sync.WaitGroup
				wg.Go(func() { runs[0] = three() })
				wg.Go(func() { runs[1] = one() })
				wg.Wait()
				if t.Failed() {
					return
				}
				runs[0].print(t, "three gateways")
				runs[1].print(t, "one gateway")
				runs[0].check(t)
				runs[1].check(t)
				a, b := runs[0].load.Overall, runs[1].load.Overall
				factor = append(factor, runs[0].factor())
				spread, alone = append(spread, relativeSpread(a)), append(alone, relativeSpread(b))
				more = append(more, float64(a.Spread()-b.Spread()))
			}
			ratio := median(spread) / median(alone)
			t.Logf("median of %d rounds: mean waits of the gateways differ by %.1f %%; (max-mean)/mean %.3f, one gateway %.3f, ratio %.2f",
				rounds, 100*(median(factor)-1), median(spread), median(alone), ratio)
			// How unequal waits of one line are tells how busy the machine is. Turns by
			// gateway would be a factor of 7.
			if median(factor) > 1.15+median(alone) {
				t.Errorf("mean waits differ by a factor of %.2f", median(factor))
			}
			// A hold is the line's grain: each pause of the machine at the wrong moment
			// costs one of the two that much. Turns by gateway would cost 16.
			if ratio > 1.3 && median(more) > 3*float64(lineHold) {
				t.Errorf("(max-mean)/mean is %.3f, for one gateway %.3f", median(spread), median(alone))
			}
		})
	}
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// TestAllClientsOnOneOfThree shows that no slot belongs to a gateway.
func TestAllClientsOnOneOfThree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	for _, binding := range []string{"late", "early"} {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			run := runLine(t, binding, 1, []int{0, 90, 0}, time.Second, time.Second)()
			if t.Failed() {
				return
			}
			run.print(t, "all clients at one of three")
			run.check(t)
		})
	}
}

// relativeSpread is the spread of access times divided by their mean.
func relativeSpread(s demo.Summary) float64 { return float64(s.Spread()) / max(float64(s.Mean), 1) }
