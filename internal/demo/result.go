package demo

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Result of a Run.
type Result struct {
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
	Count               int
	Mean, P50, P99, Max time.Duration
}

// Spread is the maximum minus the mean, the papers' measure of unfairness.
func (t Times) Spread() time.Duration { return t.Max - t.Mean }

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
		P50:   percentile(sample, 50),
		P99:   percentile(sample, 99),
		Max:   sample[len(sample)-1],
	}
}

// percentile returns the smallest value that at least p percent of the sorted
// sample do not exceed (the nearest-rank definition).
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max((p*len(sorted)+99)/100-1, 0)]
}

// samples of one target.
type samples struct {
	mu     sync.Mutex
	access []time.Duration
	failed map[int]int
}

func isOK(status int) bool { return status/100 == 2 }

func (s *samples) add(status int, access time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isOK(status) {
		s.access = append(s.access, access)
		return
	}
	if s.failed == nil {
		s.failed = make(map[int]int)
	}
	s.failed[status]++
}

func summary(name string, access []time.Duration, failed map[int]int, elapsed time.Duration) Summary {
	return Summary{Name: name, Access: summarize(access), Failed: failed, PerSecond: float64(len(access)) / max(elapsed.Seconds(), 1e-9)}
}

// result sums up what the clients saw, who have all ended.
func (r *run) result(elapsed time.Duration) *Result {
	var res Result
	var access []time.Duration
	failed := make(map[int]int)
	for _, g := range r.groups {
		access = append(access, g.samples.access...)
		for status, n := range g.samples.failed {
			failed[status] += n
		}
		res.Targets = append(res.Targets, summary(g.name, g.samples.access, maps.Clone(g.samples.failed), elapsed))
	}
	res.Overall = summary("overall", access, failed, elapsed)
	return &res
}
