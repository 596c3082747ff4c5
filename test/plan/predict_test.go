package plan

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/plan"
	"github.com/kgate/kgate/lab/protocol/fairk"
	"github.com/kgate/kgate/lab/workload"
)

// drawn returns the mean of the holds that a run draws.
func (l reality) drawn(seed uint64, length time.Duration) time.Duration {
	s := stream{source: l.source(seed)}
	var sum time.Duration
	count := 0
	for at, _, hold := s.next(0); at < warmup+length; at, _, hold = s.next(at) {
		sum += hold
		count++
	}
	return sum / time.Duration(max(count, 1))
}

func (l reality) source(seed uint64) *workload.Source {
	return workload.NewSource(l.workload(l.mean), gateways, rand.New(rand.NewPCG(seed, lab.WorkloadStream)))
}

// plan returns what kgate plan says of late binding.
func (l reality) plan(tb testing.TB, hold time.Duration) plan.Answer {
	tb.Helper()
	latency, err := network.ParseLatency("constant:" + loopback.String())
	if err != nil {
		tb.Fatal(err)
	}
	answers, err := plan.Question{K: l.k, Gateways: gateways, Rate: l.rate, HoldMean: hold, HoldSCV: l.scv, Latency: latency}.Compare(tb.Context())
	if err != nil || answers[0].Unstable != "" {
		tb.Fatal(fmt.Errorf("%s: %w", answers[0].Unstable, err))
	}
	return answers[0]
}

// same returns what the lab says under a run's own arrivals and holds.
func (l reality) same(tb testing.TB, seed uint64, length, hold time.Duration) *meter.Result {
	tb.Helper()
	r, err := lab.Run(lab.Config{
		Seed: seed, Nodes: gateways, K: l.k, Protocol: fairk.Late(), Network: network.Constant(loopback),
		Workload: l.workload(hold), Warmup: warmup, Duration: length,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func setting(tb testing.TB, variable string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("%s=%q is no number", variable, text)
	}
	return n
}

func median(all []outcome, figure func(outcome) float64) float64 {
	var values []float64
	for _, o := range all {
		values = append(values, figure(o))
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
