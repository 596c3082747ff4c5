package cluster

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Metrics are the samples of one scrape, by series: the metric's name and its
// labels as they stand in the text format.
type Metrics map[string]float64

// parseMetrics reads the Prometheus text format as far as kgate writes it: no
// time stamps, no label value with a space or a brace in it that matters here.
func parseMetrics(r io.Reader) (Metrics, error) {
	m := make(Metrics)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return nil, fmt.Errorf("no value in %q", line)
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("value in %q: %w", line, err)
		}
		m[line[:i]] = v
	}
	return m, lines.Err()
}

// Sum returns the sum of all series of a metric that have these labels, each
// written as label="value".
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
series:
	for series, v := range m {
		base, rest, _ := strings.Cut(series, "{")
		if base != name {
			continue
		}
		have := strings.Split(strings.TrimSuffix(rest, "}"), ",")
		for _, want := range labels {
			found := false
			for _, l := range have {
				found = found || l == want
			}
			if !found {
				continue series
			}
		}
		sum += v
	}
	return sum
}

// Add adds the samples of another gateway.
func (m Metrics) Add(other Metrics) {
	for series, v := range other {
		m[series] += v
	}
}

// Since returns what was added after an earlier scrape.
func (m Metrics) Since(before Metrics) Metrics {
	out := make(Metrics, len(m))
	for series, v := range m {
		out[series] = v - before[series]
	}
	return out
}
