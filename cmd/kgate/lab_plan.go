package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/plan"
)

// rate is requests per second, written as 6/s, 90/min or 2000/h.
type rate float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *rate) UnmarshalText(text []byte) error {
	number, unit, _ := strings.Cut(string(text), "/")
	seconds := map[string]float64{"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}[unit]
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || seconds == 0 || !(v > 0) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is not a rate; write 6/s, 90/min or 2000/h", text)
	}
	*r = rate(v / seconds)
	return nil
}

// labPlanCommand predicts the waits of a pool.
type labPlanCommand struct {
	K        int           `name:"k" help:"Slots over all gateways (needed unless --p99 is given)."`
	Gateways int           `name:"gateways" default:"3" help:"Number of gateways, each with the same load."`
	Rate     rate          `name:"rate" required:"" placeholder:"6/s" help:"Requests over all gateways: 6/s, 90/min, 2000/h."`
	HoldMean time.Duration `name:"hold-mean" required:"" placeholder:"TIME" help:"Mean time that a request is in flight."`
	HoldSCV  float64       `name:"hold-scv" default:"1" help:"Variance of that time over its squared mean: 0 constant, 1 exponential, more for a heavy tail."`
	P99      time.Duration `name:"p99" placeholder:"TIME" help:"Find the smallest k with which 99 % of the requests wait at most this long."`
	Seeds    int           `name:"seeds" default:"5" help:"Number of runs."`
	Entries  int           `name:"entries" default:"100000" help:"Requests per run."`
	latencyFlag
}

func (labPlanCommand) Help() string {
	return `Simulates the load, with requests that arrive independently of each other, and prints
how long they wait under late binding, under early binding, and with k/n slots at
each gateway. The longest wait is of as many requests as a run has. Delays are
one-way; by default 0.2 ms, a LAN.

Examples:
  kgate lab plan --k 16 --gateways 5 --rate 6/s --hold-mean 2s --hold-scv 3
  kgate lab plan --gateways 3 --rate 40/s --hold-mean 150ms --p99 1s

Exit codes: 0 answered, 1 no k meets the goal, 2 wrong command line.`
}

func (c *labPlanCommand) Validate() error {
	if c.K == 0 && c.P99 == 0 {
		return errors.New("give --k, or --p99 to find a k")
	}
	if c.P99 < 0 || c.Seeds < 1 || c.Entries < 1 {
		return errors.New("--p99 cannot be negative, and --seeds and --entries must be at least 1")
	}
	q := c.question()
	q.K = max(q.K, 1)
	return q.Validate()
}

func (c *labPlanCommand) question() plan.Question {
	return plan.Question{
		K: c.K, Gateways: c.Gateways, Rate: float64(c.Rate), HoldMean: c.HoldMean, HoldSCV: c.HoldSCV,
		Latency: c.model, Seeds: c.Seeds, Entries: c.Entries,
	}
}

func (c *labPlanCommand) Run(std streams) error {
	ctx, cancel := untilSignal()
	defer cancel()
	b := newBar(std, "")
	q := c.question()
	q.Progress = b.during
	if c.P99 > 0 {
		k, _, err := q.Smallest(ctx, c.P99)
		b.close()
		if err != nil {
			return err
		}
		fmt.Fprintf(std.out, "k = %d is the smallest with which 99 %% of the requests wait at most %v\n\n", k, c.P99)
		if q.K == 0 {
			q.K = k
		}
	}
	answers, err := q.Compare(ctx)
	b.close()
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "k = %d over %d gateways, load %.3g; %d runs of %d requests\n\n", q.K, q.Gateways, q.Load(), q.Seeds, q.Entries)
	w := tabwriter.NewWriter(std.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "WAIT\tMEAN\tP99\tMAX\tSPREAD")
	for _, a := range answers {
		if a.Unstable != "" {
			fmt.Fprintf(w, "%s\t%s\n", a.Name, a.Unstable)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.Name, wait(a.Mean), wait(a.P99), wait(a.Max), wait(a.Spread))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if late, early := answers[0], answers[1]; late.Unstable != "" && q.Load() < 1 {
		advice := "fewer gateways, a larger k"
		if early.Unstable == "" {
			advice = "early binding, " + advice
		}
		fmt.Fprintf(std.out, "\nWhat helps: %s or shorter delays.\n", advice)
	}
	return nil
}

// wait formats seconds, with half of the confidence interval.
func wait(v meter.Interval) string {
	unit, factor := "s", 1.0
	if v.Mean < 1 {
		unit, factor = "ms", 1000
	}
	if math.IsNaN(v.Half) {
		return fmt.Sprintf("%.3g %s", v.Mean*factor, unit)
	}
	return fmt.Sprintf("%.3g %s ±%.2g", v.Mean*factor, unit, v.Half*factor)
}
