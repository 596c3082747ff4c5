package demo

import (
	"math"
	"testing"
	"time"
)

// TestSamplerMoments: mean and SCV of 200,000 samples are the distribution's.
func TestSamplerMoments(t *testing.T) {
	for _, tt := range []struct {
		scv, meanTolerance, scvTolerance float64
	}{
		{0, 0, 0},
		{0.25, 0.01, 0.02},
		{1, 0.01, 0.03},
		{4, 0.02, 0.10},
	} {
		s := newSampler(Distribution{Mean: 40 * time.Millisecond, SCV: tt.scv}, 7)
		const n = 200_000
		var sum, squares float64
		for range n {
			x := float64(s.next())
			if x < 0 {
				t.Fatalf("SCV %v: negative sample", tt.scv)
			}
			sum += x
			squares += x * x
		}
		mean := sum / n
		scv := (squares/n - mean*mean) / (mean * mean)
		if off := math.Abs(mean/float64(40*time.Millisecond) - 1); off > tt.meanTolerance {
			t.Errorf("SCV %v: mean %v", tt.scv, time.Duration(mean))
		}
		if math.Abs(scv-tt.scv) > tt.scvTolerance*tt.scv+1e-9 {
			t.Errorf("SCV of the samples %v, want %v", scv, tt.scv)
		}
	}
}

// TestSamplerSeed: a seed decides the samples.
func TestSamplerSeed(t *testing.T) {
	draw := func(seed uint64) (ds [8]time.Duration) {
		s := newSampler(Distribution{Mean: time.Second, SCV: 4}, seed)
		for i := range ds {
			ds[i] = s.next()
		}
		return ds
	}
	if first, again := draw(1), draw(1); first != again {
		t.Error("the same seed gives different samples")
	}
	if draw(1) == draw(2) {
		t.Error("different seeds give the same samples")
	}
}

func TestDistributionValidate(t *testing.T) {
	for _, d := range []Distribution{{Mean: -1}, {SCV: -1}, {SCV: math.NaN()}, {SCV: math.Inf(1)}} {
		if d.Validate() == nil {
			t.Errorf("%+v is accepted", d)
		}
	}
}
