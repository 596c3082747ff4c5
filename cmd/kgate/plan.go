package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kgate/kgate/lab/bar"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
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

// planCommand predicts the waits of a pool.
type planCommand struct {
	K        int             `name:"k" help:"Slots over all gateways (needed unless --p99 or --upstreams is given)."`
	Each     []int           `name:"upstreams" placeholder:"K,..." help:"The k of each upstream, where each has its own: how long requests wait, and how long without one of them."`
	Gateways int             `name:"gateways" default:"3" help:"Number of gateways, each with the same load."`
	Rate     rate            `name:"rate" required:"" placeholder:"6/s" help:"Requests over all gateways: 6/s, 90/min, 2000/h."`
	HoldMean time.Duration   `name:"hold-mean" placeholder:"TIME" help:"Mean time that a request is in flight (needed unless --from-metrics is given)."`
	HoldSCV  float64         `name:"hold-scv" default:"1" help:"Variance of that time over its squared mean: 0 constant, 1 exponential, more for a heavy tail."`
	From     []string        `name:"from-metrics" sep:"none" placeholder:"URL|FILE" help:"Take mean and SCV from kgate_hold_time_seconds there; once per gateway, to add them up."`
	Pool     string          `name:"pool" placeholder:"NAME" help:"The pool to read from the metrics (needed if they show several)."`
	P99      time.Duration   `name:"p99" placeholder:"TIME" help:"Find the smallest k with which 99 % of the requests wait at most this long."`
	Seeds    int             `name:"seeds" default:"5" help:"Number of runs."`
	Entries  int             `name:"entries" default:"100000" help:"Requests per run."`
	Latency  network.Latency `name:"latency" placeholder:"MODEL" help:"One-way delays: constant:5ms, jitter:5ms,1ms, clustered (a made-up WAN), king:FILE (measured, p2psim format)."`
	JSON     bool            `name:"json" help:"Print k, the load and the waits, in seconds, as JSON."`
}

func (planCommand) Help() string {
	return `Simulates the load, with requests that arrive independently of each other, and prints
how long they wait under late binding, under early binding, and with k/n slots at
each gateway. The longest wait is of as many requests as a run has. Delays are
one-way; by default 0.2 ms, a LAN. --from-metrics reads how long requests were held
from running gateways; a URL gives a finer SCV than a file in the text format.

Examples:
  kgate plan --k 16 --gateways 5 --rate 6/s --hold-mean 2s --hold-scv 3
  kgate plan --gateways 3 --rate 40/s --hold-mean 150ms --p99 1s
  kgate plan --upstreams 2,2,4 --rate 3/s --hold-mean 1500ms
  kgate plan --k 16 --rate 6/s --from-metrics http://127.0.0.1:9080/metrics --pool downloads

Exit codes: 0 answered, 1 no k meets the goal, 2 wrong command line.`
}

func (c *planCommand) Validate() error {
	if c.K == 0 && c.P99 == 0 && len(c.Each) == 0 {
		return errors.New("give --k, or --p99 to find a k, or --upstreams")
	}
	if len(c.Each) > 0 && (c.K != 0 || c.P99 != 0) {
		return errors.New("with --upstreams, k is the sum: give neither --k nor --p99")
	}
	for _, k := range c.Each {
		if k < 1 {
			return fmt.Errorf("the k of an upstream is %d: it must be at least 1", k)
		}
	}
	if c.P99 < 0 || c.Seeds < 1 || c.Entries < 1 {
		return errors.New("--p99 cannot be negative, and --seeds and --entries must be at least 1")
	}
	if (c.HoldMean == 0) == (len(c.From) == 0) {
		return errors.New("give either --hold-mean or --from-metrics")
	}
	if c.Pool != "" && len(c.From) == 0 {
		return errors.New("--pool is for --from-metrics")
	}
	q := c.question()
	q.K = max(q.K, 1)
	if len(c.From) > 0 {
		q.HoldMean = time.Second // until it is read
	}
	return q.Validate()
}

func (c *planCommand) question() plan.Question {
	k := c.K
	for _, each := range c.Each {
		k += each
	}
	return plan.Question{
		K: k, Gateways: c.Gateways, Rate: float64(c.Rate), HoldMean: c.HoldMean, HoldSCV: c.HoldSCV,
		Latency: c.Latency, Seeds: c.Seeds, Entries: c.Entries,
	}
}

func (c *planCommand) Run(std streams) error {
	ctx, cancel := untilSignal()
	defer cancel()
	q, out := c.question(), std.out
	if c.JSON {
		out = io.Discard
	}
	if len(c.From) > 0 {
		h, err := readHolds(ctx, c.From, c.Pool)
		if err != nil {
			return err
		}
		q.HoldMean, q.HoldSCV = h.mean, h.scv
		fmt.Fprintf(out, "%.0f requests of pool %s were held %.3g s on average, SCV %.2g\n\n", h.count, h.pool, h.mean.Seconds(), h.scv)
	}
	b := bar.New(std.err)
	q.Progress = b.Update
	if c.P99 > 0 {
		k, _, err := q.Smallest(ctx, c.P99)
		b.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "k = %d is the smallest with which 99 %% of the requests wait at most %v\n\n", k, c.P99)
		if q.K == 0 {
			q.K = k
		}
	}
	ask := q.Compare
	if len(c.Each) > 0 {
		ask = func(ctx context.Context) ([]plan.Answer, error) { return q.WithoutOne(ctx, c.Each) }
	}
	answers, err := ask(ctx)
	b.Close()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.out, planned{q.K, q.Load(), waitsOf(answers)})
	}
	fmt.Fprintf(out, "k = %d over %d gateways, load %.3g; %d runs of %d requests\n\n", q.K, q.Gateways, q.Load(), q.Seeds, q.Entries)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
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
	if answers[0].Unstable != "" && q.Load() < 1 {
		fmt.Fprintf(out, "\nWhat helps: %s.\n", advice(q, len(c.Each) == 0 && answers[1].Unstable == ""))
	}
	return nil
}

// planned is what --json prints.
type planned struct {
	K     int            `json:"k"`
	Load  float64        `json:"load"`
	Waits map[string]any `json:"waits"`
}

// waitsOf has for each way to share the slots the mean waits of the runs, in seconds, or why the line grows.
func waitsOf(answers []plan.Answer) map[string]any {
	out := make(map[string]any)
	for _, a := range answers {
		if out[a.Name] = any(map[string]float64{"mean": a.Mean.Mean, "p99": a.P99.Mean, "max": a.Max.Mean, "spread": a.Spread.Mean}); a.Unstable != "" {
			out[a.Name] = map[string]string{"unstable": a.Unstable}
		}
	}
	return out
}

// advice says what to do about slots that late binding passes on too slowly.
func advice(q plan.Question, early bool) string {
	text := "fewer gateways, a larger k (which lowers the load) or shorter delays"
	if early {
		text = "early binding (binding: early), " + text
	}
	if delay, err := q.Delay(); err == nil && float64(q.K)*delay.Seconds() > q.HoldMean.Seconds() {
		text += fmt.Sprintf("; k times the delay, %d x %v, is more than a hold of %v", q.K, delay, q.HoldMean)
	}
	return text
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
