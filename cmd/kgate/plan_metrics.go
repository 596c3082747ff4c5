package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// holdMetric is what [telemetry] shows of how long requests hold a slot.
const holdMetric = "kgate_hold_time_seconds"

// holds are the holds of a pool.
type holds struct {
	pool  string
	count float64
	mean  time.Duration
	scv   float64
}

// readHolds adds up the holds of a pool over metrics of several gateways. If they show one
// pool only it need not be named.
func readHolds(ctx context.Context, sources []string, pool string) (*holds, error) {
	sum := holdSum{pools: make(map[string]bool)}
	for _, source := range sources {
		families, err := readMetrics(ctx, source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		for _, m := range families[holdMetric].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "pool" && (pool == "" || l.GetValue() == pool) {
					sum.pools[l.GetValue()] = true
					sum.add(m.GetHistogram())
				}
			}
		}
	}
	names := sum.names()
	switch {
	case len(names) > 1:
		return nil, fmt.Errorf("the metrics show several pools; give --pool, one of %s", strings.Join(names, ", "))
	case len(names) == 0 && pool != "":
		return nil, fmt.Errorf("no %s of pool %s", holdMetric, pool)
	case sum.count == 0:
		return nil, fmt.Errorf("no request has ended yet in %s", holdMetric)
	}
	return &holds{
		pool: names[0], count: sum.count, mean: time.Duration(sum.seconds / sum.count * float64(time.Second)),
		scv: max(0, sum.squares*sum.count/(sum.within*sum.within)-1),
	}, nil
}

// readMetrics reads an exposition, from a gateway or from a file.
func readMetrics(ctx context.Context, source string) (map[string]*dto.MetricFamily, error) {
	var in io.ReadCloser
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	if strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://") {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, http.NoBody)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim))) // has the narrow buckets
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		in, format = res.Body, expfmt.ResponseFormat(res.Header)
		if res.StatusCode != http.StatusOK {
			_ = in.Close()
			return nil, errors.New(res.Status)
		}
	} else {
		f, err := os.Open(source)
		if err != nil {
			return nil, err
		}
		in = f
	}
	defer in.Close()
	families := make(map[string]*dto.MetricFamily)
	for dec := expfmt.NewDecoder(in, format); ; {
		f := new(dto.MetricFamily)
		switch err := dec.Decode(f); {
		case errors.Is(err, io.EOF):
			return families, nil
		case err != nil:
			return nil, err
		}
		families[f.GetName()] = f
	}
}

// holdSum adds up histograms.
type holdSum struct {
	pools           map[string]bool
	count, seconds  float64
	within, squares float64 // sums over the buckets of a hold and of its square
}

func (s *holdSum) names() []string {
	var all []string
	for name := range s.pools {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// add takes the native buckets, which are narrow, or else the classic ones.
func (s *holdSum) add(h *dto.Histogram) {
	s.count += float64(h.GetSampleCount())
	s.seconds += h.GetSampleSum()
	if len(h.GetPositiveSpan()) > 0 {
		s.native(h)
		return
	}
	low, below := 0.0, uint64(0)
	for _, b := range h.GetBucket() {
		s.bucket(low, b.GetUpperBound(), float64(b.GetCumulativeCount()-below))
		low, below = b.GetUpperBound(), b.GetCumulativeCount()
	}
	if !math.IsInf(low, 1) { // the protobuf format leaves the last bucket out
		s.bucket(low, math.Inf(1), float64(h.GetSampleCount()-below))
	}
}

// native adds the buckets of a native histogram: the i-th ends at 2^(i 2^-schema).
func (s *holdSum) native(h *dto.Histogram) {
	edge := func(i int) float64 { return math.Exp2(float64(i) * math.Exp2(-float64(h.GetSchema()))) }
	s.bucket(0, h.GetZeroThreshold(), float64(h.GetZeroCount()))
	i, next := 0, 0
	n := int64(0)
	for _, span := range h.GetPositiveSpan() {
		i += int(span.GetOffset())
		for range span.GetLength() {
			n += h.GetPositiveDelta()[next]
			s.bucket(edge(i-1), edge(i), float64(n))
			i++
			next++
		}
	}
}

// bucket adds n holds between low and high. They are taken to be spread evenly over the
// logarithm, as a bucket's edges are.
func (s *holdSum) bucket(low, high, n float64) {
	first, second := high/2, high*high/3 // evenly from 0
	switch {
	case n == 0:
		return
	case math.IsInf(high, 1):
		first, second = low, low*low
	case low > 0:
		width := math.Log(high / low)
		first, second = (high-low)/width, (high*high-low*low)/(2*width)
	}
	s.within += n * first
	s.squares += n * second
}
