package demo

import (
	"slices"
	"time"
)

// Result of a Run.
type Result struct {
	// Elapsed is the real length of the window.
	Elapsed time.Duration
	// Targets in the order of the configuration.
	Targets []Summary
	// Overall is over all targets together.
	Overall Summary
}

// Summary of the answers that arrived within the window.
type Summary struct {
	Name string
	// Access times, of answers with status 2xx.
	Access Times
	// Queue times as the gateway reports them in Server-Timing.
	Queue Times
	// Latency is the time from asking to the answer's last byte.
	Latency Times
	// Failed counts the other answers by status; status 0 is no answer.
	Failed map[int]int
	// PerSecond is the number of 2xx answers per second.
	PerSecond float64
}

// Errors returns how many answers were not 2xx.
func (s Summary) Errors() int {
	n := 0
	for _, count := range s.Failed {
		n += count
	}
	return n
}

// Times sums up a sample of times. All are 0 if Count is.
type Times struct {
	Count                    int
	Mean, P50, P90, P99, Max time.Duration
}

// Spread is the maximum minus the mean, the papers' measure of unfairness.
func (t Times) Spread() time.Duration { return t.Max - t.Mean }

// RelativeSpread is the spread divided by the mean.
func (t Times) RelativeSpread() float64 {
	if t.Mean == 0 {
		return 0
	}
	return float64(t.Spread()) / float64(t.Mean)
}

// summarize sorts sample.
func summarize(sample []time.Duration) Times {
	if len(sample) == 0 {
		return Times{}
	}
	slices.Sort(sample)
	var sum float64
	for _, d := range sample {
		sum += float64(d)
	}
	return Times{
		Count: len(sample),
		Mean:  time.Duration(sum / float64(len(sample))),
		P50:   quantile(sample, 0.50),
		P90:   quantile(sample, 0.90),
		P99:   quantile(sample, 0.99),
		Max:   sample[len(sample)-1],
	}
}

// quantile returns the smallest value that at least the fraction q of the
// sorted sample does not exceed (the nearest-rank definition).
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[max(rank-1, 0)]
}

// samples of one target.
type samples struct {
	access, queue, latency []time.Duration
	failed                 map[int]int
}

func newSamples() samples { return samples{failed: map[int]int{}} }

func (s *samples) add(a answer) {
	if !a.ok() {
		s.failed[a.status]++
		return
	}
	s.access = append(s.access, a.access())
	s.queue = append(s.queue, a.queue)
	s.latency = append(s.latency, a.latency)
}

func (s *samples) merge(from *samples) {
	s.access = append(s.access, from.access...)
	s.queue = append(s.queue, from.queue...)
	s.latency = append(s.latency, from.latency...)
	for status, n := range from.failed {
		s.failed[status] += n
	}
}

func (s *samples) summary(name string, elapsed time.Duration) Summary {
	out := Summary{
		Name:    name,
		Access:  summarize(s.access),
		Queue:   summarize(s.queue),
		Latency: summarize(s.latency),
		Failed:  s.failed,
	}
	if elapsed > 0 {
		out.PerSecond = float64(out.Access.Count) / elapsed.Seconds()
	}
	return out
}

func (r *run) result(elapsed time.Duration) *Result {
	res := &Result{Elapsed: elapsed}
	all := newSamples()
	for _, g := range r.groups {
		g.mu.Lock()
		all.merge(&g.samples)
		res.Targets = append(res.Targets, g.samples.summary(g.name, elapsed))
		g.mu.Unlock()
	}
	res.Overall = all.summary("overall", elapsed)
	return res
}

// answer is one answer, as a client measures it.
type answer struct {
	status  int // 0: none
	latency time.Duration
	hold    time.Duration // as the upstream reports it
	queue   time.Duration // as the gateway reports it
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

func (a answer) access() time.Duration { return max(a.latency-a.hold, 0) }
