package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// vectors are the metrics that are counted, not mirrored.
type vectors struct {
	requests, responses, messages *prometheus.CounterVec
	requestBytes, responseBytes   *prometheus.CounterVec
	admissions                    *prometheus.CounterVec
	batonMoves, inversions        *prometheus.CounterVec
	refused, upstreamRequests     *prometheus.CounterVec
	upstreamRetries, traceSpans   *prometheus.CounterVec
	upstreamConns                 *prometheus.CounterVec
	recoveries, auditFailures     *prometheus.CounterVec
	leaseLost, leaderChanges      prometheus.Counter
	wait, hold, upstream          *prometheus.HistogramVec
	diskWrite                     *prometheus.HistogramVec
	recoveryTime, commit          prometheus.Observer
	batchSize, hops               prometheus.Observer

	all []prometheus.Collector
}

// timeBuckets are the upper edges of the classic buckets, in seconds, from 50 us to
// 2 h. None is near a time at which something is cut off by default (1, 3, 5, 10, 30,
// 60 s and so on): each such time lies in the middle of a narrow bucket. A quantile
// of many waits of 60 s, say, then reads 60 s, and not half as much again. Scrapers
// that can, read the native buckets.
var timeBuckets = []float64{
	.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5,
	.8, 1.2, 2.5, 3.5, 4.5, 5.5, 8, 12, 25, 35, 50, 70, 110, 130, 250, 350, 500, 700,
	1500, 2100, 3300, 3900, 7200,
}

func newVectors() vectors {
	var all []prometheus.Collector
	counterVec := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		all = append(all, c)
		return c
	}
	histogramVec := func(o prometheus.HistogramOpts, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(o, labels)
		all = append(all, h)
		return h
	}
	timeVec := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return histogramVec(timeOptions(name, help), labels...)
	}
	v := vectors{
		requests:         counterVec("kgate_requests_total", "Requests that have ended, by outcome; each request has exactly one.", "pool", "outcome"),
		admissions:       counterVec("kgate_admissions_total", "Requests and tickets that have got a slot.", "pool"),
		responses:        counterVec("kgate_responses_total", "Answers to clients, by status code, including those of upstreams; 499: the client left before there was one.", "pool", "code"),
		requestBytes:     counterVec("kgate_request_bytes_total", "Bytes of request bodies that clients have sent.", "pool"),
		responseBytes:    counterVec("kgate_response_bytes_total", "Bytes of response bodies sent to clients; upgraded connections do not count.", "pool"),
		upstreamRetries:  counterVec("kgate_upstream_retries_total", "Attempts at another upstream of the pool because the one before could not be connected to.", "pool"),
		upstreamConns:    counterVec("kgate_upstream_connections_total", "Requests that were written to a connection to an upstream, by whether it was new or had carried others.", "pool", "connection"),
		messages:         counterVec("kgate_messages_total", "Messages of the algorithm between this gateway and others.", "pool", "type", "direction"),
		batonMoves:       counterVec("kgate_baton_moves_total", "Moves of the baton from this gateway to another.", "pool"),
		inversions:       counterVec("kgate_inversions_total", "Requests that were overtaken: admitted after one that had arrived at the same gateway later.", "pool"),
		traceSpans:       counterVec("kgate_trace_spans_total", "Spans, by whether the collector took them or they were lost.", "result"),
		refused:          counterVec("kgate_peer_refused_total", "Connections and messages at the peer port that were refused.", "cause"),
		upstreamRequests: counterVec("kgate_upstream_requests_total", "Requests that were sent to an upstream, by what came of them: the class of the answer's status, or why there was none; left: the client left first.", "pool", "upstream", "result"),
		wait:             timeVec("kgate_wait_time_seconds", "Time from a request's arrival to the end of its wait, by how the wait ended.", "pool", "outcome"),
		hold:             timeVec("kgate_hold_time_seconds", "Time from a request's admission to the return of its slot.", "pool"),
		upstream:         timeVec("kgate_upstream_response_seconds", "Time from sending a request upstream to the answer's header.", "pool"),
		diskWrite:        timeVec("kgate_disk_write_seconds", "Time to write to data_dir and sync, by what was written.", "what"),
		recoveries:       counterVec("kgate_recoveries_total", "Epochs that this gateway has entered, by cause.", "pool", "reason"),
		auditFailures:    counterVec("kgate_token_audit_failures_total", "Audits by this gateway that found tokens lost or doubled.", "pool"),
		leaseLost:        counterVec("kgate_lease_lost_total", "How often this gateway has lost its lease, and everything in flight with it.").WithLabelValues(),
		leaderChanges:    counterVec("kgate_leader_changes_total", "How often this gateway has seen another gateway become the leader.").WithLabelValues(),
		recoveryTime:     timeVec("kgate_recovery_seconds", "How long the start of an epoch kept requests waiting at this gateway.").WithLabelValues(),
		commit:           timeVec("kgate_commit_seconds", "How long this gateway waited, as leader, for a majority to store a change.").WithLabelValues(),
		batchSize: histogramVec(prometheus.HistogramOpts{
			Name: "kgate_message_batch_size", Help: "Messages that one write to a peer carried.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}).WithLabelValues(),
		hops: histogramVec(prometheus.HistogramOpts{
			Name: "kgate_request_hops", Help: "Gateways that forwarded a request for a place in line before it reached the last in line.",
			Buckets: []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64},
		}).WithLabelValues(),
	}
	v.all = all
	return v
}

// timeOptions are a histogram's of times, with native buckets beside the classic
// ones.
func timeOptions(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: timeBuckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
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
