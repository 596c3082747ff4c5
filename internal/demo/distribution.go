package demo

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Distribution of times, by mean and squared coefficient of variation.
type Distribution struct {
	Mean time.Duration
	// SCV is the variance divided by the squared mean: 0 constant, 1
	// exponential, other values log-normal.
	SCV float64
}

// Validate returns the errors of d, joined.
func (d Distribution) Validate() error {
	var errs []error
	if d.Mean < 0 {
		errs = append(errs, errors.New("demo: negative mean"))
	}
	if d.SCV < 0 || math.IsNaN(d.SCV) || math.IsInf(d.SCV, 0) {
		errs = append(errs, errors.New("demo: the squared coefficient of variation is not a number from 0"))
	}
	return errors.Join(errs...)
}

// sampler draws from a distribution. It is safe for concurrent use.
type sampler struct {
	dist      Distribution
	mu, sigma float64 // of the log-normal's logarithm

	lock sync.Mutex
	rng  *rand.Rand
}

func newSampler(d Distribution, seed uint64) *sampler {
	s := &sampler{dist: d, rng: rand.New(rand.NewPCG(seed, 0x6b67617465))}
	// A log-normal variable has SCV exp(sigma^2)-1 and mean exp(mu+sigma^2/2).
	variance := math.Log1p(d.SCV)
	s.sigma = math.Sqrt(variance)
	s.mu = math.Log(float64(max(d.Mean, 1))) - variance/2
	return s
}

func (s *sampler) next() time.Duration {
	if s.dist.Mean == 0 || s.dist.SCV == 0 {
		return s.dist.Mean
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.dist.SCV == 1 {
		return time.Duration(s.rng.ExpFloat64() * float64(s.dist.Mean))
	}
	return time.Duration(math.Exp(s.mu + s.sigma*s.rng.NormFloat64()))
}
