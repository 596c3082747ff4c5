package workload

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// Config is a workload. Exactly one of Closed and Open is set.
type Config struct {
	Closed *Closed
	Open   *Open
	// Hold is the time in the critical section.
	Hold Hold
	// Patience is the mean of the exponential time after which a waiting
	// client leaves; 0: never.
	Patience time.Duration
}

// Closed is a fixed number of clients that ask again and again.
type Closed struct {
	// Rate is 1 / mean thinking time, per second: the paper's lambda.
	Rate float64
	// PerNode is how many clients each node has (default 1).
	PerNode int
}

// Open is a stream of requests from outside.
type Open struct {
	// Rate is the requests per second over all nodes.
	Rate float64
	// Burst is how many requests come at once, to one node (default 1: a
	// Poisson stream).
	Burst int
	// Weights are the nodes' shares of the stream; nil: alike. See [Skew].
	Weights []float64
}

// Skew returns the weights of n nodes of which the i-th has 1/i^exponent of the
// first one's load.
func Skew(n int, exponent float64) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Pow(float64(i+1), -exponent)
	}
	return w
}

// Load returns the rate of an open stream that keeps a share load of k tokens
// busy.
func Load(load float64, k int, hold time.Duration) float64 { return load * float64(k) / hold.Seconds() }

// Validate tells everything that is wrong with the workload for so many nodes.
func (c *Config) Validate(nodes int) error {
	var errs []error
	bad := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, errors.New("workload: "+text))
		}
	}
	bad((c.Closed == nil) == (c.Open == nil), "either closed or open")
	bad(c.Hold.draw == nil, "no distribution of hold times")
	bad(c.Patience < 0, "negative patience")
	if c.Closed != nil {
		bad(c.Closed.Rate <= 0 || c.Closed.PerNode < 0, "closed: rate above 0, clients from 1")
	}
	if c.Open != nil {
		bad(c.Open.Rate <= 0 || c.Open.Burst < 0, "open: rate above 0, burst from 1")
		bad(c.Open.Weights != nil && len(c.Open.Weights) != nodes, "one weight per node")
		negative := slices.ContainsFunc(c.Open.Weights, func(w float64) bool { return w < 0 })
		bad(negative, "a negative weight")
	}
	return errors.Join(errs...)
}

// Source draws the workload's random times.
type Source struct {
	cfg   Config
	nodes int
	rand  *rand.Rand
	upTo  []float64 // cumulated weights
}

// NewSource returns the source of a valid workload.
func NewSource(cfg Config, nodes int, r *rand.Rand) *Source {
	s := &Source{cfg: cfg, nodes: nodes, rand: r}
	if cfg.Open != nil {
		sum := 0.0
		for _, w := range cfg.Open.Weights {
			sum += w
			s.upTo = append(s.upTo, sum)
		}
	}
	return s
}

// Clients returns how many clients each node has; 0 when the workload is open.
func (s *Source) Clients() int {
	if s.cfg.Closed == nil {
		return 0
	}
	return max(1, s.cfg.Closed.PerNode)
}

// Think returns how long a client thinks before it asks (closed).
func (s *Source) Think() time.Duration { return s.exponential(1 / s.cfg.Closed.Rate) }

// Next returns after which time, at which node, and how many requests come next
// (open).
func (s *Source) Next() (after time.Duration, node, count int) {
	count = max(1, s.cfg.Open.Burst)
	after = s.exponential(float64(count) / s.cfg.Open.Rate)
	if s.upTo == nil {
		return after, s.rand.IntN(s.nodes), count
	}
	u := s.rand.Float64() * s.upTo[len(s.upTo)-1]
	return after, min(sort.SearchFloat64s(s.upTo, u), s.nodes-1), count
}

// Hold returns a request's time in the critical section.
func (s *Source) Hold() time.Duration { return s.cfg.Hold.Draw(s.rand) }

// Patience returns how long a client waits, and whether it ever leaves.
func (s *Source) Patience() (time.Duration, bool) {
	if s.cfg.Patience == 0 {
		return 0, false
	}
	return s.exponential(s.cfg.Patience.Seconds()), true
}

func (s *Source) exponential(mean float64) time.Duration {
	return time.Duration(s.rand.ExpFloat64() * mean * float64(time.Second))
}
