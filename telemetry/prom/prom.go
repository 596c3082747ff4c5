// Package prom has the metrics of package telemetry in a Prometheus registry. Only a program that
// imports it contains Prometheus' packages, which add /debug/vars to http.DefaultServeMux.
package prom

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kgate/kgate/telemetry"
)

// errNoRegistry is returned by New without a registry.
var errNoRegistry = errors.New("prom: no registry")

// Config of New. The zero value serves.
type Config struct {
	telemetry.Config
	// Gateway is this gateway's name, the label gateway of every metric. Empty: there
	// is no such label.
	Gateway string
	// Embedded leaves out the metrics of Go and of the process: the program has collectors
	// of its own for those.
	Embedded bool
}

// New registers the metrics in reg and returns their Metrics.
func New(reg prometheus.Registerer, cfg Config) (*telemetry.Metrics, error) {
	if reg == nil {
		return nil, errNoRegistry
	}
	var r registry
	m := telemetry.New(&r, cfg.Config)
	all := append(r, newMirror(m))
	if !cfg.Embedded {
		all = append(all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if cfg.Gateway != "" {
		reg = prometheus.WrapRegistererWith(prometheus.Labels{"gateway": cfg.Gateway}, reg)
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("prom: %w", err)
		}
	}
	return m, nil
}

// maxScrapes bounds concurrent scrapes.
const maxScrapes = 8

// Handler serves the metrics.
func Handler(from prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		EnableOpenMetrics:   true,
	})
}

// registry is a telemetry.Registry. It holds the collectors that it has made.
type registry []prometheus.Collector

// Counters implements telemetry.Registry.
func (r *registry) Counters(name, help string, labels ...string) func(...string) telemetry.Counter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	*r = append(*r, vec)
	return func(values ...string) telemetry.Counter { return vec.WithLabelValues(values...) }
}

// Times implements telemetry.Registry. It has native buckets beside the classic ones.
func (r *registry) Times(name, help string, labels ...string) func(...string) telemetry.Observer {
	return r.histogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: timeBuckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// Sizes implements telemetry.Registry.
func (r *registry) Sizes(name, help string, edges []float64) telemetry.Observer {
	return r.histogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: edges}, nil)()
}

func (r *registry) histogram(o prometheus.HistogramOpts, labels []string) func(...string) telemetry.Observer {
	vec := prometheus.NewHistogramVec(o, labels)
	*r = append(*r, vec)
	return func(values ...string) telemetry.Observer { return observer{vec.WithLabelValues(values...)} }
}

// timeBuckets are the upper edges of the classic buckets, in seconds, from 50 us to 2 h. No edge is
// near a default timeout (1, 3, 5, 10, 30, 60 s and so on): each timeout lies in the middle of a
// narrow bucket. A quantile of many waits of 60 s then reads 60 s, and not half as much again.
// Scrapers that can read the native buckets do so.
var timeBuckets = []float64{
	.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5,
	.8, 1.2, 2.5, 3.5, 4.5, 5.5, 8, 12, 25, 35, 50, 70, 110, 130, 250, 350, 500, 700,
	1500, 2100, 3300, 3900, 7200,
}

// observer is a telemetry.Observer.
type observer struct{ prometheus.Observer }

// Observe implements telemetry.Observer.
func (o observer) Observe(value float64, traceID string) {
	if traceID == "" {
		o.Observer.Observe(value)
		return
	}
	o.Observer.(prometheus.ExemplarObserver).ObserveWithExemplar(value, prometheus.Labels{"trace_id": traceID})
}

// mirror collects the metrics that mirror state.
type mirror struct {
	m     *telemetry.Metrics
	descs map[*telemetry.Desc]*prometheus.Desc
}

func newMirror(m *telemetry.Metrics) mirror {
	out := mirror{m, make(map[*telemetry.Desc]*prometheus.Desc)}
	for _, d := range telemetry.Mirrored {
		out.descs[d] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	}
	return out
}

// Describe implements prometheus.Collector.
func (m mirror) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m mirror) Collect(ch chan<- prometheus.Metric) {
	m.m.Mirror(func(d *telemetry.Desc, value float64, since time.Time, labels ...string) {
		if since.IsZero() {
			ch <- prometheus.MustNewConstMetric(m.descs[d], prometheus.GaugeValue, value, labels...)
			return
		}
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(m.descs[d], prometheus.CounterValue, value, since, labels...)
	})
}
