package cluster

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// Unequal is an upstream of a pool with k slots, and 90 clients that ask for it at several
// addresses: 63, 18 and 9 at three of them. It judges that their line is one.
type Unequal struct {
	k     int
	u     *demo.Upstream
	judge *Judge
}

// NewUnequal starts the upstream, and returns its URL. Holds are exponential, 40 ms on
// average.
func NewUnequal(t *testing.T, k int) (x *Unequal, url string) {
	t.Helper()
	u := &demo.Upstream{Hold: 40 * time.Millisecond, SCV: 1}
	judge, _, url := NewJudge(t, u)
	return &Unequal{k, u, judge}, url
}

// Handler is the upstream, for servers of other kinds.
func (x *Unequal) Handler() http.Handler { return x.judge.around(x.u) }

// Run has the clients ask at the addresses for a while. No request may fail, at most k may
// be in flight, and the mean waits at each address must be within this part of the mean of
// all; in the ordinary run within half of it: turns by address would put them 70 to 110 % off.
// The window must hold many waits for that, which it does not on a machine that is very busy.
func (x *Unequal) Run(t *testing.T, addresses []string, window time.Duration, within float64) {
	t.Helper()
	clients := map[int][]int{3: {63, 18, 9}, 5: {45, 18, 9, 9, 9}}[len(addresses)]
	var began, ended demo.Stats
	load := demo.LoadConfig{Warmup: time.Second, Duration: window, Opened: func() { began = x.u.Stats() }, Closed: func() { ended = x.u.Stats() }}
	for i, url := range addresses {
		load.Targets = append(load.Targets, demo.Target{URL: url, Clients: clients[i]})
	}
	result, err := demo.Run(t.Context(), load)
	if err != nil {
		t.Fatal(err)
	}
	if n := result.Overall.Errors; n > 0 {
		t.Errorf("%d failed: %v", n, result.Overall.Failed)
	}
	if _, most, total := x.judge.Counts(); most != x.k {
		t.Errorf("of %d requests at most %d were in flight at the upstream, k is %d", total, most, x.k)
	}
	mean := result.Overall.Mean
	if !Soak() {
		within = 0.5
		if window < 3*mean {
			t.Logf("mean wait %v, too long to compare means within %v", mean, window)
			return
		}
	}
	for i, s := range result.Targets {
		t.Logf("%d clients: %d answers, mean wait %v", clients[i], s.Count, s.Mean.Round(100*time.Microsecond))
		if off := math.Abs(float64(s.Mean-mean)) / float64(mean); off > within {
			t.Errorf("%d clients wait %v, all together %v: %.1f %% off", clients[i], s.Mean, mean, 100*off)
		}
	}
	t.Logf("slots busy %.1f %%", 100*ended.Busy(began, x.k))
}
