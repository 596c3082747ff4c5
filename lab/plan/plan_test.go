package plan

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/lab/network"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// erlang returns the mean wait in a line before k servers with exponential holds.
func erlang(k int, load float64, hold time.Duration) float64 {
	a := load * float64(k)
	blocked := 1.0 // Erlang B
	for i := 1; i <= k; i++ {
		blocked = a * blocked / (float64(i) + a*blocked)
	}
	waits := blocked / (1 - load*(1-blocked)) // Erlang C
	return waits * hold.Seconds() / (float64(k) * (1 - load))
}

func latency(t *testing.T, text string) network.Latency {
	t.Helper()
	l, err := network.ParseLatency(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Without delays late binding is one line before k servers, and a static split one
// line at each gateway: what queueing theory knows.
func TestErlang(t *testing.T) {
	const load = .7
	hold := 100 * time.Millisecond
	answers, err := Question{
		K: 6, Gateways: 3, Rate: load * 6 / hold.Seconds(), HoldMean: hold, HoldSCV: 1, Latency: latency(t, "constant:0s"), Entries: 60_000,
	}.Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]float64{0: erlang(6, load, hold), 2: erlang(2, load, hold)} {
		a := answers[i]
		if got := a.Mean.Mean; math.Abs(got/want-1) > .06 {
			t.Errorf("%s: mean wait %.4f +- %.4f s, theory %.4f s", a.Name, got, a.Mean.Half, want)
		}
		if a.P99.Mean < a.Mean.Mean || a.Max.Mean < a.P99.Mean || math.Abs(a.Max.Mean-a.Mean.Mean-a.Spread.Mean) > 1e-6 {
			t.Errorf("%+v", a)
		}
	}
	if early := answers[1].Mean.Mean; early < 1.3*answers[0].Mean.Mean {
		t.Errorf("early waits %.4f s, late %.4f s", early, answers[0].Mean.Mean)
	}
}

// One slot less than the smallest k does not meet the goal.
func TestSmallest(t *testing.T) {
	q := Question{Gateways: 4, Rate: 50, HoldMean: 200 * time.Millisecond, HoldSCV: 2, Entries: 10_000, Seeds: 3}
	const goal = 500 * time.Millisecond
	k, a, err := q.Smallest(t.Context(), goal)
	if err != nil {
		t.Fatal(err)
	}
	if k < 11 || a.P99.Mean > goal.Seconds() {
		t.Fatalf("k = %d with a p99 of %.3f s", k, a.P99.Mean)
	}
	q.K = k - 1
	below, err := q.Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if below[0].Unstable == "" && below[0].P99.Mean <= goal.Seconds() {
		t.Errorf("k = %d has a p99 of %.3f s too", k-1, below[0].P99.Mean)
	}
	// More gateways than slots: most requests have to wait for messages.
	many := Question{Gateways: 100, Rate: 10, HoldMean: 20 * time.Millisecond, HoldSCV: 1, Entries: 300, Seeds: 2}
	if _, _, err := many.Smallest(t.Context(), time.Nanosecond); !errors.Is(err, errGoal) {
		t.Errorf("a goal below the network's delay: %v", err)
	}
}

// A line that grows without end is told, not simulated.
func TestUnstable(t *testing.T) {
	q := Question{K: 4, Gateways: 3, Rate: 39, HoldMean: 100 * time.Millisecond, HoldSCV: 1, Entries: 2000, Seeds: 2}
	answers, err := q.Compare(t.Context())
	if err != nil || answers[0].Unstable != "" || !strings.Contains(answers[2].Unstable, "its 1 of the slots") {
		t.Errorf("%+v, %v", answers, err)
	}
	q.K = 2
	for _, a := range must(q.Compare(t.Context())) {
		if a.Unstable == "" || a.Mean.Runs > 0 {
			t.Errorf("%s at load 1.95: %+v", a.Name, a)
		}
	}
	q.K, q.Rate = 2, 1
	if a := must(q.Compare(t.Context()))[2]; !strings.Contains(a.Unstable, "no slot") {
		t.Errorf("two slots over three gateways: %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Compare(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

func must(a []Answer, err error) []Answer {
	if err != nil {
		panic(err)
	}
	return a
}

func TestValidate(t *testing.T) {
	good := Question{K: 1, Gateways: 1, Rate: 1, HoldMean: time.Second}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, spoil := range []func(*Question){
		func(q *Question) { q.K = 0 }, func(q *Question) { q.Gateways = 0 }, func(q *Question) { q.Rate = 0 },
		func(q *Question) { q.Rate = math.NaN() }, func(q *Question) { q.HoldMean = 0 }, func(q *Question) { q.HoldSCV = -1 },
		func(q *Question) { q.HoldSCV = math.Inf(1) }, func(q *Question) { q.Entries = -1 }, func(q *Question) { q.K = 1 << 30 },
	} {
		q := good
		spoil(&q)
		if q.Validate() == nil {
			t.Errorf("accepted %+v", q)
		}
		if _, err := q.Compare(t.Context()); err == nil {
			t.Errorf("compared %+v", q)
		}
	}
}

// Late binding that passes its slots on too slowly is no pool with a wait of so much: the longer
// the run, the longer the wait. Others are steady, and so is a line that only takes long to settle.
func TestGrowth(t *testing.T) {
	far := Question{K: 16, Gateways: 5, Rate: 80, HoldMean: 150 * time.Millisecond, HoldSCV: 1, Latency: latency(t, "constant:40ms"), Entries: 20_000, Seeds: 3}
	busy := Question{K: 1, Gateways: 3, Rate: .95 / .15, HoldMean: 150 * time.Millisecond, HoldSCV: 3, Entries: 2000, Seeds: 3}
	slower, longer := far, busy
	slower.Rate, longer.Entries = 60, 60_000
	for _, c := range []struct {
		name        string
		q           Question
		late, early string // parts of the answers
	}{
		{"more than it passes on", far, "grows without end", ""},
		{"as much as it does", slower, "", ""},
		{"almost busy, for a moment", busy, "still grew after 2000 requests", "still grew"},
		{"almost busy", longer, "", ""},
	} {
		answers, err := c.q.Compare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{c.late, c.early} {
			a := answers[i]
			if a.Unstable == "" != (want == "") || !strings.Contains(a.Unstable, want) || a.Unstable == "" != (a.Mean.Runs > 0) {
				t.Errorf("%s, %s: %q, mean %.3g s; want %q", c.name, a.Name, a.Unstable, a.Mean.Mean, want)
			}
		}
	}
	k, a, err := far.Smallest(t.Context(), 2500*time.Millisecond)
	if err != nil || k <= far.K || a.Unstable != "" {
		t.Errorf("the smallest k for it is %d: %+v, %v", k, a, err)
	}
}
