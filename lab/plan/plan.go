package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/protocol/static"
	"github.com/kgate/kgate/lab/workload"
)

// Question is a load, and the pool that is to carry it.
type Question struct {
	// K is the number of slots, over all gateways.
	K        int
	Gateways int
	// Rate is in requests per second, over all gateways.
	Rate     float64
	HoldMean time.Duration
	HoldSCV  float64
	// Latency between the gateways; default constant:200us, a LAN.
	Latency network.Latency
	// Seeds is the number of runs (default 5), Entries of requests in each
	// (default 100,000).
	Seeds, Entries int
	// Progress is called from any goroutine with the name of the present simulation and the number
	// of its runs that are done.
	Progress func(what string, done, total int)
}

func (q Question) withDefaults() Question {
	q.Seeds, q.Entries = cmp.Or(q.Seeds, 5), cmp.Or(q.Entries, 100_000)
	q.Latency = q.Latency.Or(network.Always("constant:200us", 200*time.Microsecond))
	return q
}

// Limits of what can be simulated within reason.
const (
	maxGateways = 10_000
	maxK        = 1 << 16
)

// Validate tells everything that is wrong with the question.
func (q Question) Validate() error {
	var errs []error
	bad := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, errors.New("plan: "+text))
		}
	}
	bad(q.K < 1 || q.K > maxK, fmt.Sprintf("k is 1 to %d", maxK))
	bad(q.Gateways < 1 || q.Gateways > maxGateways, fmt.Sprintf("there are 1 to %d gateways", maxGateways))
	bad(!(q.Rate > 0) || q.Rate > 1e9, "the rate is above 0, and not above 1e9 a second")
	bad(q.HoldMean < time.Microsecond || q.HoldMean > 24*time.Hour, "the mean hold is 1us to 24h")
	bad(!(q.HoldSCV >= 0) || q.HoldSCV > 1000, "the hold's SCV is 0 to 1000")
	bad(q.Seeds < 0 || q.Entries < 0, "seeds and requests cannot be negative")
	return errors.Join(errs...)
}

// Load is the share of the slots that the requests keep busy. From 1 on, the line
// grows without end.
func (q Question) Load() float64 { return q.Rate * q.HoldMean.Seconds() / float64(q.K) }

// Delay is the mean time that a message takes from one gateway to another.
func (q Question) Delay() (time.Duration, error) {
	q = q.withDefaults()
	model, err := q.Latency.Model(q.Gateways, 1)
	if err != nil {
		return 0, err
	}
	return model.Mean(), nil
}

// Answer is how one kind of pool carries the load.
type Answer struct {
	Name string
	// Unstable says that the line grows, and why; then there are no waits to tell.
	Unstable string
	// Waits in seconds.
	Mean, P99, Max, Spread meter.Interval
}

// Compare answers for late and early binding and for k/n slots at each of n
// gateways that do not talk.
func (q Question) Compare(ctx context.Context) ([]Answer, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	q = q.withDefaults()
	answers := []Answer{{Name: "late"}, {Name: "early"}, {Name: "static split"}}
	for i, p := range []protocol.Spec{fairk.Late(), fairk.Early(), static.Spec()} {
		a := &answers[i]
		if a.Unstable = q.unstable(p.Name == "static"); a.Unstable != "" {
			continue
		}
		if err := q.ask(ctx, p, a); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// WithoutOne answers, under late binding, for a pool whose upstreams have these k of their own, and for it
// without one of them, of each k. The question's own k does not matter.
func (q Question) WithoutOne(ctx context.Context, each []int) ([]Answer, error) {
	sum := 0
	for _, k := range each {
		sum += k
	}
	q.K = sum
	if err := q.Validate(); err != nil {
		return nil, err
	}
	q = q.withDefaults()
	lost := slices.Compact(slices.Sorted(slices.Values(each)))
	var answers []Answer
	for _, k := range append([]int{0}, lost...) {
		a := Answer{Name: fmt.Sprintf("without one of k %d", k)}
		if k == 0 {
			a.Name = "late"
		}
		if q.K = sum - k; q.K == 0 {
			a.Unstable = "none: all are refused"
		} else if a.Unstable = q.unstable(false); a.Unstable == "" {
			if err := q.ask(ctx, fairk.Late(), &a); err != nil {
				return nil, err
			}
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// unstable says why no simulation can tell a wait.
func (q Question) unstable(split bool) string {
	switch {
	case q.Load() >= 1:
		return fmt.Sprintf("grows without end: %.3g slots are needed on average", q.Load()*float64(q.K))
	case split && q.K < q.Gateways:
		return "grows without end: some gateways have no slot"
	case split && q.Load()*float64(q.K)/float64(q.Gateways) >= float64(q.K/q.Gateways):
		return fmt.Sprintf("grows without end: a gateway is overloaded with its %d of the slots", q.K/q.Gateways)
	}
	return ""
}

// growth says of runs in which the line grew what it means; "" if it did not. In a line that is
// steady the waits rise in one run and fall in the next. One that has almost too few slots rises
// until it has settled.
func (q Question) growth(results []*meter.Result) string {
	rise := of(results, func(r *meter.Result) float64 { return r.Rise })
	if rise.Mean < 1 || slices.ContainsFunc(results, func(r *meter.Result) bool { return r.Rise < .5 }) {
		return ""
	}
	mean := of(results, func(r *meter.Result) float64 { return r.Wait.Mean().Seconds() }).Mean
	settles := q.HoldMean.Seconds() * (1 + q.HoldSCV) / (float64(q.K) * (1 - q.Load()) * (1 - q.Load()))
	if float64(q.Entries)/q.Rate < 100*settles {
		return fmt.Sprintf("still grew after %d requests, which waited for %.3g s on average: simulate more (--entries)", q.Entries, mean)
	}
	return fmt.Sprintf("grows without end: slots do not get from gateway to gateway fast enough for %.3g requests a second; the first %d waited for %.3g s on average",
		q.Rate, q.Entries, mean)
}

// of returns a figure of runs.
func of(results []*meter.Result, figure func(*meter.Result) float64) meter.Interval {
	var sample []float64
	for _, r := range results {
		sample = append(sample, figure(r))
	}
	return meter.Confidence(sample)
}

// ask simulates one kind of pool.
func (q Question) ask(ctx context.Context, p protocol.Spec, a *Answer) error {
	results := make([]*meter.Result, q.Seeds)
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range results {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			results[i], err = q.run(p, uint64(i+1))
			if q.Progress != nil {
				q.Progress(fmt.Sprintf("k = %d, %s", q.K, a.Name), int(done.Add(1)), q.Seeds)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("plan: %s: %w", a.Name, err)
	}
	if a.Unstable = q.growth(results); a.Unstable != "" {
		return nil
	}
	a.Mean = of(results, func(r *meter.Result) float64 { return r.Wait.Mean().Seconds() })
	a.P99 = of(results, func(r *meter.Result) float64 { return r.Wait.Quantile(.99).Seconds() })
	a.Max = of(results, func(r *meter.Result) float64 { return r.Wait.Max().Seconds() })
	a.Spread = of(results, func(r *meter.Result) float64 { return r.Wait.Spread().Seconds() })
	return nil
}

// run is one simulation. A tenth of it comes before the measuring.
func (q Question) run(p protocol.Spec, seed uint64) (*meter.Result, error) {
	model, err := q.Latency.Model(q.Gateways, seed)
	if err != nil {
		return nil, err
	}
	warmup := time.Duration(float64(q.Entries) / 10 / q.Rate * float64(time.Second))
	return lab.Run(lab.Config{
		Seed: seed, Nodes: q.Gateways, K: q.K, Protocol: p, Network: model, Warmup: warmup, Entries: uint64(q.Entries),
		Workload: workload.Config{Open: &workload.Open{Rate: q.Rate}, Hold: workload.SCV(q.HoldMean, q.HoldSCV)},
	})
}

// errGoal means that no k can meet the goal.
var errGoal = errors.New("plan: no k meets the goal")

// Smallest returns the smallest k with which 99 % of the requests wait no longer
// than p99 under late binding, and how the pool does then. The question's own k
// does not matter.
func (q Question) Smallest(ctx context.Context, p99 time.Duration) (int, Answer, error) {
	q.K = 1
	if err := q.Validate(); err != nil {
		return 0, Answer{}, err
	}
	q = q.withDefaults()
	meets := func(k int) (bool, Answer, error) {
		q.K = k
		a := Answer{Name: "late"}
		err := q.ask(ctx, fairk.Late(), &a)
		return a.Unstable == "" && a.P99.Mean <= p99.Seconds(), a, err
	}
	// low is too few: below it the line grows without end.
	low := int(min(q.Rate*q.HoldMean.Seconds(), maxK))
	high, step := low, 1
	var best Answer
	for {
		if high = low + step; high > maxK {
			return 0, Answer{}, fmt.Errorf("%w: a p99 of %v; the network's own delays may be longer", errGoal, p99)
		}
		ok, a, err := meets(high)
		if err != nil {
			return 0, Answer{}, err
		}
		if ok {
			best = a
			break
		}
		// More than twice the slots that are ever busy change nothing.
		if float64(high) > 4*q.Rate*q.HoldMean.Seconds()+64 {
			if a.Unstable != "" {
				return 0, Answer{}, fmt.Errorf("%w: a p99 of %v; with k = %d the line %s", errGoal, p99, high, a.Unstable)
			}
			return 0, Answer{}, fmt.Errorf("%w: a p99 of %v; with k = %d it is %.3g s, which is the network's", errGoal, p99, high, a.P99.Mean)
		}
		low, step = high, 2*step
	}
	for high-low > 1 {
		k := (low + high) / 2
		ok, a, err := meets(k)
		switch {
		case err != nil:
			return 0, Answer{}, err
		case ok:
			high, best = k, a
		default:
			low = k
		}
	}
	return high, best, nil
}
