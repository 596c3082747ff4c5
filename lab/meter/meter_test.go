package meter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var whole, left, right Histogram
	var all []time.Duration
	for i := range 200_000 {
		d := time.Duration(r.ExpFloat64() * float64(3*time.Second))
		if i%7 == 0 {
			d = time.Duration(r.IntN(200)) // nanoseconds: the exact buckets
		}
		all = append(all, d)
		whole.Add(d)
		if i%2 == 0 {
			left.Add(d)
		} else {
			right.Add(d)
		}
	}
	left.merge(&right)
	slices.Sort(all)
	for _, q := range []float64{0, .05, .5, .9, .99, .999, 1} {
		want := all[min(len(all)-1, int(q*float64(len(all))))]
		for _, h := range []*Histogram{&whole, &left} {
			if got := h.Quantile(q); math.Abs(float64(got-want)) > .01*float64(want) {
				t.Errorf("quantile %g is %v, want %v", q, got, want)
			}
		}
	}
	if left.observations() != whole.observations() || left.Max() != all[len(all)-1] || (left.Mean()-whole.Mean()).Abs() > time.Microsecond {
		t.Error("merging is not adding")
	}
}

// Buckets tile the times: each time is in the bucket whose middle is near.
func TestBuckets(t *testing.T) {
	for d := time.Duration(1); d > 0 && d < 1<<61; d += d/300 + 1 {
		if m := middle(bucketOf(d)); math.Abs(float64(m-d)) > .005*float64(d) {
			t.Fatalf("%d is in the bucket of %d", d, m)
		}
	}
}

// The window counts as one does by hand.
func TestInversions(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	o := newOrder()
	var waiting []uint64
	var arrived []time.Duration
	for step := range 200_000 {
		if len(waiting) == 0 || r.IntN(2) == 0 || step < 5000 && r.IntN(3) > 0 {
			now := time.Duration(step)
			waiting, arrived = append(waiting, o.arrive(now)), append(arrived, now)
			continue
		}
		i := min(r.IntN(len(waiting)), r.IntN(len(waiting)))
		want := arrived[waiting[i]] - arrived[waiting[0]]
		if got, gap := o.leave(waiting[i]); got != i || gap != want {
			t.Fatalf("step %d: %d older ones wait, the oldest since %v before: counted %d, %v", step, i, want, got, gap)
		}
		waiting = slices.Delete(waiting, i, i+1)
	}
	if len(o.waiting) > 1<<16 {
		t.Errorf("a window of %d for %d waiting", len(o.waiting), len(waiting))
	}
}

func TestMeter(t *testing.T) {
	const s = time.Second
	m := New(2, 2, 0)
	a, b, c := m.Arrived(0), m.Arrived(1*s), m.Arrived(1*s)
	m.Entered(2*s, b, 1, 1*s)
	m.Entered(4*s, a, 0, 0)
	m.GaveUp(5*s, c)
	m.Ended(6 * s)
	m.Ended(7 * s)
	m.Sent(7*s, "x")
	r := m.Result(10 * s)
	// Two tokens are free and one request waits for a second, then three for
	// another; then one is free and two wait for two seconds.
	if r.Idle != 1*s+2*s+2*s {
		t.Errorf("idle %v", r.Idle)
	}
	if r.Busy != 2*s+2*2*s+1*s {
		t.Errorf("busy %v", r.Busy)
	}
	if r.Inversions != 1 || r.Overtakes != 1 || r.Gap != s || r.Left != 1 || r.Entries != 2 || r.MaxRunning != 2 {
		t.Errorf("%+v", r)
	}
	if r.Wait.Max() != 4*s || r.Wait.Spread() != 3*s/2 || r.NodeMax[1] != s || r.MessagesPerEntry() != .5 {
		t.Errorf("%+v", r)
	}
}

func TestConfidence(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{2, 5, 31, 40} {
		covered := 0
		const trials = 4000
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = 10 + r.NormFloat64()
			}
			if in := Confidence(values); math.Abs(in.Mean-10) <= in.Half {
				covered++
			}
		}
		if share := float64(covered) / trials; math.Abs(share-.95) > .015 {
			t.Errorf("%d runs: the interval covers %.3f, want .95", n, share)
		}
	}
	if in := Confidence([]float64{3}); in.Mean != 3 || !math.IsNaN(in.Half) {
		t.Errorf("one run: %+v", in)
	}
}

// Rise is the slope of the line through the waits.
func TestRise(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(i int) time.Duration
		want float64
	}{
		{"steady", func(int) time.Duration { return time.Second }, 0},
		{"grows", func(i int) time.Duration { return time.Duration(i) * time.Millisecond }, 2},
		{"grows from the mean", func(i int) time.Duration { return time.Duration(1000+i) * time.Millisecond }, 2. / 3},
		{"nobody waits", func(int) time.Duration { return 0 }, 0},
	} {
		m := New(1, 1, 0)
		for i := range 1000 {
			now := time.Duration(i) * time.Hour
			n := m.Arrived(now)
			m.Entered(now, n, 0, now-c.wait(i))
			m.Ended(now)
		}
		if got := m.Result(1000 * time.Hour).Rise; math.Abs(got-c.want) > .01 {
			t.Errorf("%s: %.3f, want %.3f", c.name, got, c.want)
		}
	}
}
