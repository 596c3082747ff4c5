package experiment

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab"
	"github.com/kgate/kgate/lab/meter"
	"github.com/kgate/kgate/lab/network"
	"github.com/kgate/kgate/lab/protocol"
)

// standard are the figures of a run of package lab.
var standard = []Figure{
	{"mean_s", "mean wait"},
	{"p50_s", "wait that half do not exceed"},
	{"p99_s", "wait that 99 % do not exceed"},
	{"max_s", "longest wait"},
	{"spread_s", "longest wait less the mean one"},
	{"messages", "messages per entry"},
	{"hops", "nodes that forwarded a request, per entry"},
	{"handoff_s", "time that a token was unused although somebody waited, per entry"},
	{"overtakes", "share of the entries that came in before an older request"},
	{"busy", "share of the token time that was used"},
	{"gap_s", "largest difference in age between a request that came in and an older one that still waited"},
}

// figures returns a run's standard figures.
func figures(r *meter.Result, k int) []float64 {
	entries := float64(r.Entries)
	return []float64{
		r.Wait.Mean().Seconds(), r.Wait.Quantile(.5).Seconds(), r.Wait.Quantile(.99).Seconds(),
		r.Wait.Max().Seconds(), r.Wait.Spread().Seconds(), r.MessagesPerEntry(), r.HopsPerEntry(),
		r.Idle.Seconds() / entries, float64(r.Overtakes) / entries,
		r.Busy.Seconds() / r.Measured.Seconds() / float64(k), r.Gap.Seconds(),
	}
}

// one is a cell of one row of standard figures.
func one(l network.Latency, cfg lab.Config, keys ...string) cell {
	return cell{rows: [][]string{keys}, measure: func(seed uint64) ([][]float64, error) {
		r, err := under(l, cfg, seed)
		if err != nil {
			return nil, err
		}
		return [][]float64{figures(r, cfg.K)}, nil
	}}
}

// beside is a cell of rows for protocols under the same arrivals. Each has the
// standard figures, and what extra makes of them and of the first protocol's.
func beside(l network.Latency, keys []string, protocols []protocol.Spec, config func(protocol.Spec) lab.Config, extra func(row, first []float64) []float64) cell {
	var c cell
	for _, p := range protocols {
		c.rows = append(c.rows, append(slices.Clone(keys), p.Name))
	}
	c.measure = func(seed uint64) ([][]float64, error) {
		var rows [][]float64
		for _, p := range protocols {
			cfg := config(p)
			r, err := under(l, cfg, seed)
			if err != nil {
				return nil, err
			}
			rows = append(rows, figures(r, cfg.K))
		}
		first := rows[0]
		for i, row := range rows {
			rows[i] = append(row, extra(row, first)...)
		}
		return rows, nil
	}
	return c
}

// value returns one of the standard figures.
func value(row []float64, figure string) float64 {
	return row[slices.IndexFunc(standard, func(f Figure) bool { return f.Name == figure })]
}

// under carries out one run.
func under(l network.Latency, cfg lab.Config, seed uint64) (*meter.Result, error) {
	var err error
	cfg.Seed = seed
	if cfg.Network, err = l.Model(cfg.Nodes, seed); err != nil {
		return nil, err
	}
	return lab.Run(cfg)
}

// named gives a protocol another name.
func named(name string, p protocol.Spec) protocol.Spec {
	p.Name = name
	return p
}

// text formats a number as a key.
func text[T int | float64](v T) string { return strconv.FormatFloat(float64(v), 'g', -1, 64) }

// within reports whether v lies in low..high.
func within(v, low, high float64) bool { return v >= low && v <= high }

// slope fits y = a + b x and returns b, and the share of the variance of y that
// the line explains.
func slope(x, y []float64) (b, explained float64) {
	mean := func(v []float64) (m float64) {
		for _, one := range v {
			m += one / float64(len(v))
		}
		return m
	}
	mx, my := mean(x), mean(y)
	var xx, xy, yy float64
	for i := range x {
		xx += (x[i] - mx) * (x[i] - mx)
		xy += (x[i] - mx) * (y[i] - my)
		yy += (y[i] - my) * (y[i] - my)
	}
	return xy / xx, xy * xy / xx / yy
}

// quantile of a sample, by the nearest rank.
func quantile(sample []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(sample))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
