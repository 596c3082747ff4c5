package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Hold is the distribution of the time that requests spend in the critical
// section.
type Hold struct {
	name string
	mean time.Duration
	draw func(*rand.Rand) float64 // in seconds
}

// Draw returns the next request's time.
func (h Hold) Draw(r *rand.Rand) time.Duration {
	return time.Duration(h.draw(r) * float64(time.Second))
}

// Mean returns the mean of the distribution.
func (h Hold) Mean() time.Duration { return h.mean }

// String names the distribution and its parameters.
func (h Hold) String() string { return h.name }

// Constant holds are all alike.
func Constant(d time.Duration) Hold {
	s := d.Seconds()
	return Hold{fmt.Sprintf("constant %v", d), d, func(*rand.Rand) float64 { return s }}
}

// Exponential holds have SCV 1.
func Exponential(mean time.Duration) Hold {
	s := mean.Seconds()
	return Hold{fmt.Sprintf("exponential %v", mean), mean, func(r *rand.Rand) float64 { return s * r.ExpFloat64() }}
}

// LogNormal holds have this mean and SCV.
func LogNormal(mean time.Duration, scv float64) Hold {
	variance := math.Log(1 + scv) // of the logarithm
	mu, sigma := math.Log(mean.Seconds())-variance/2, math.Sqrt(variance)
	return Hold{fmt.Sprintf("log-normal %v, SCV %g", mean, scv), mean, func(r *rand.Rand) float64 {
		return math.Exp(mu + sigma*r.NormFloat64())
	}}
}

// SCV returns holds with this mean and SCV, of the usual kind: constant for 0,
// exponential for 1, log-normal else.
func SCV(mean time.Duration, scv float64) Hold {
	switch scv {
	case 0:
		return Constant(mean)
	case 1:
		return Exponential(mean)
	default:
		return LogNormal(mean, scv)
	}
}

// Bimodal holds are long with probability share, else short.
func Bimodal(short, long time.Duration, share float64) Hold {
	s, l := short.Seconds(), long.Seconds()
	mean := time.Duration(float64(short)*(1-share) + float64(long)*share)
	return Hold{fmt.Sprintf("bimodal %v, %g%% %v", short, 100*share, long), mean, func(r *rand.Rand) float64 {
		if r.Float64() < share {
			return l
		}
		return s
	}}
}

// Pareto holds have a heavy tail: P(hold > x) falls as x^-alpha. Alpha is above 1;
// up to 2 the variance is infinite.
func Pareto(mean time.Duration, alpha float64) Hold {
	least := mean.Seconds() * (alpha - 1) / alpha
	return Hold{fmt.Sprintf("Pareto %v, alpha %g", mean, alpha), mean, func(r *rand.Rand) float64 {
		return least * math.Pow(1-r.Float64(), -1/alpha)
	}}
}
