package workload_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/workload"
)

func TestHoldsHaveTheirMoments(t *testing.T) {
	const mean = 2 * time.Second
	for _, c := range []struct {
		hold workload.Hold
		scv  float64 // negative: infinite
		mean time.Duration
	}{
		{workload.SCV(mean, 0), 0, mean},
		{workload.SCV(mean, 1), 1, mean},
		{workload.SCV(mean, .25), .25, mean},
		{workload.SCV(mean, 4), 4, mean},
		{workload.Bimodal(5*time.Second, 105*time.Second, .05), 4.75, 10 * time.Second},
		{workload.Pareto(mean, 3), 1. / 3, mean},
		{workload.Pareto(mean, 1.5), -1, mean},
	} {
		r := rand.New(rand.NewPCG(7, 7))
		const n = 1_000_000
		sum, squares := 0., 0.
		for range n {
			s := c.hold.Draw(r).Seconds()
			sum += s
			squares += s * s
		}
		got := sum / n
		if c.hold.Mean() != c.mean || math.Abs(got/c.mean.Seconds()-1) > .05 {
			t.Errorf("%v: mean %v, drawn %.3f, want %v", c.hold, c.hold.Mean(), got, c.mean)
		}
		if scv := squares/n/got/got - 1; c.scv >= 0 && math.Abs(scv-c.scv) > .03+.15*c.scv {
			t.Errorf("%v: SCV %.3f, want %.3f", c.hold, scv, c.scv)
		}
	}
}

func TestOpenStream(t *testing.T) {
	cfg := workload.Config{
		Open: &workload.Open{Rate: 50, Burst: 5, Weights: workload.Skew(4, 1)},
		Hold: workload.Constant(time.Second),
	}
	if err := cfg.Validate(4); err != nil {
		t.Fatal(err)
	}
	s := workload.NewSource(cfg, 4, rand.New(rand.NewPCG(1, 1)))
	var at time.Duration
	var counts [4]float64
	total := 0.
	for range 100_000 {
		after, node, n := s.Next()
		at += after
		counts[node] += float64(n)
		total += float64(n)
	}
	if rate := total / at.Seconds(); math.Abs(rate-50) > 1 {
		t.Errorf("rate %.2f, want 50", rate)
	}
	if ratio := counts[0] / counts[3]; math.Abs(ratio-4) > .2 {
		t.Errorf("first has %.2f times the load of the last, want 4", ratio)
	}
}

func TestValidate(t *testing.T) {
	hold := workload.Constant(time.Second)
	for _, c := range []workload.Config{
		{Hold: hold},
		{Hold: hold, Closed: &workload.Closed{Rate: 1}, Open: &workload.Open{Rate: 1}},
		{Closed: &workload.Closed{Rate: 1}},
		{Hold: hold, Closed: &workload.Closed{}},
		{Hold: hold, Open: &workload.Open{Rate: 1, Weights: []float64{1}}},
		{Hold: hold, Open: &workload.Open{Rate: 1, Weights: []float64{1, -1}}},
		{Hold: hold, Open: &workload.Open{Rate: 1}, Patience: -1},
	} {
		if c.Validate(2) == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}
