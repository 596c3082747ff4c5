package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// vectors are the metrics that are counted, not mirrored.
type vectors struct {
	requests, messages, batonMoves *prometheus.CounterVec
	inversions                     *prometheus.CounterVec
	refused, upstreamErrors        *prometheus.CounterVec
	traceSpans                     *prometheus.CounterVec
	recoveries, auditFailures      *prometheus.CounterVec
	leaseLost                      prometheus.Counter
	recoveryTime, diskWrite        prometheus.Histogram
	access, hold, upstream         *prometheus.HistogramVec
	batchSize, hops                prometheus.Histogram
}

// timeBuckets are the classic buckets, in seconds: 1 ms to 10 min, about three
// to a decade. Scrapers that can, read the native ones.
var timeBuckets = []float64{
	.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600,
}

func newVectors() vectors {
	return vectors{
		requests: counterVec("kgate_requests_total", "Requests that have ended, by outcome; each request has exactly one.", "pool", "outcome"),
		messages: counterVec("kgate_messages_total", "Messages of the algorithm between this gateway and others.", "pool", "type", "direction"),
		batonMoves: counterVec("kgate_baton_moves_total", "Moves of the baton from this gateway to another.",
			"pool"),
		inversions: counterVec("kgate_inversions_total", "Requests that were overtaken: admitted after one that had arrived at the same gateway later.",
			"pool"),
		traceSpans:     counterVec("kgate_trace_spans_total", "Spans that were sent to the collector, and whether it has taken them.", "result"),
		refused:        counterVec("kgate_peer_refused_total", "What came in from peers, or who pretends to be one, and was refused.", "cause"),
		upstreamErrors: counterVec("kgate_upstream_errors_total", "Requests that an upstream did not answer.", "pool", "cause"),
		access:         timeVec("kgate_access_time_seconds", "Time from a request's arrival to its admission."),
		hold:           timeVec("kgate_hold_time_seconds", "Time from a request's admission to the return of its slot."),
		upstream:       timeVec("kgate_upstream_response_seconds", "Time from sending a request upstream to the answer's header."),
		recoveries:     counterVec("kgate_recoveries_total", "Epochs that this gateway has entered, by what made them necessary.", "pool", "reason"),
		auditFailures: counterVec("kgate_token_audit_failures_total", "Audits by this gateway that found tokens lost or doubled.",
			"pool"),
		leaseLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kgate_lease_lost_total", Help: "How often this gateway has lost its lease, and everything in flight with it.",
		}),
		recoveryTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kgate_recovery_seconds", Help: "How long the forming of an epoch kept requests waiting at this gateway.",
			Buckets: timeBuckets,
		}),
		diskWrite: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kgate_disk_write_seconds", Help: "How long a write of agreed state to data_dir took, until it was on disk.",
			Buckets: timeBuckets,
		}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kgate_message_batch_size", Help: "Messages that one write to a peer carried.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		hops: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kgate_request_hops", Help: "Gateways that forwarded a request for a place in line before it reached the last in line.",
			Buckets: []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64},
		}),
	}
}

func (v vectors) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		v.requests, v.messages, v.batonMoves, v.inversions, v.refused, v.upstreamErrors, v.traceSpans,
		v.access, v.hold, v.upstream, v.batchSize, v.hops,
		v.recoveries, v.auditFailures, v.leaseLost, v.recoveryTime, v.diskWrite,
	}
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// timeVec has a native histogram beside the classic buckets.
func timeVec(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: timeBuckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"pool"})
}

// maxCauses bounds the values of a label cause.
const maxCauses = 32

// causes hands out the counters of a label cause. The first maxCauses values
// get one each, all others share one.
type causes struct {
	vec   *prometheus.CounterVec
	other prometheus.Counter

	mu sync.RWMutex // guards by
	by map[string]prometheus.Counter
}

func newCauses(vec *prometheus.CounterVec) *causes {
	return &causes{vec: vec, other: vec.WithLabelValues(other), by: map[string]prometheus.Counter{}}
}

func (c *causes) inc(cause string) {
	c.mu.RLock()
	counter, ok := c.by[cause]
	c.mu.RUnlock()
	if !ok {
		counter = c.add(cause)
	}
	counter.Inc()
}

func (c *causes) add(cause string) prometheus.Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counter, ok := c.by[cause]; ok {
		return counter
	}
	if len(c.by) >= maxCauses || !isWord(cause) {
		return c.other
	}
	counter := c.vec.WithLabelValues(cause)
	c.by[cause] = counter
	return counter
}

// isWord reports whether s is a constant that a programmer wrote, rather than
// something that came over the network.
func isWord(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 40
}
