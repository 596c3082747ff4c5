package telemetry

import "sync"

// counters and observers return the Counter or Observer of the labels' values.
type (
	counters  func(labels ...string) Counter
	observers func(labels ...string) Observer
)

// vectors are the metrics that are counted, not mirrored.
type vectors struct {
	requests, responses, messages counters
	requestBytes, responseBytes   counters
	admissions                    counters
	batonMoves, inversions        counters
	refused, upstreamRequests     counters
	upstreamRetries, traceSpans   counters
	upstreamConns                 counters
	recoveries, auditFailures     counters
	leaseLost, leaderChanges      Counter
	wait, hold, upstream          observers
	diskWrite                     observers
	recoveryTime, commit          Observer
	batchSize, hops               Observer
}

func newVectors(r Registry) vectors {
	return vectors{
		requests:         r.Counters("kgate_requests_total", "Requests that have ended, by outcome; each request has exactly one.", "pool", "outcome"),
		admissions:       r.Counters("kgate_admissions_total", "Requests and tickets that have got a slot.", "pool"),
		responses:        r.Counters("kgate_responses_total", "Answers to clients, by status code, including those of upstreams; 499: the client left before there was one.", "pool", "code"),
		requestBytes:     r.Counters("kgate_request_bytes_total", "Bytes of request bodies that clients have sent.", "pool"),
		responseBytes:    r.Counters("kgate_response_bytes_total", "Bytes of response bodies sent to clients; upgraded connections do not count.", "pool"),
		upstreamRetries:  r.Counters("kgate_upstream_retries_total", "Attempts at another upstream of the pool because the one before could not be connected to.", "pool"),
		upstreamConns:    r.Counters("kgate_upstream_connections_total", "Requests that were written to a connection to an upstream, by whether it was new or had carried others.", "pool", "connection"),
		messages:         r.Counters("kgate_messages_total", "Messages of the algorithm between this gateway and others.", "pool", "type", "direction"),
		batonMoves:       r.Counters("kgate_baton_moves_total", "Moves of the baton from this gateway to another.", "pool"),
		inversions:       r.Counters("kgate_inversions_total", "Requests that were overtaken: admitted after one that had arrived at the same gateway later.", "pool"),
		traceSpans:       r.Counters("kgate_trace_spans_total", "Spans, by whether the collector took them or they were lost.", "result"),
		refused:          r.Counters("kgate_peer_refused_total", "Connections and messages at the peer port that were refused.", "cause"),
		upstreamRequests: r.Counters("kgate_upstream_requests_total", "Requests that were sent to an upstream, by what came of them: the class of the answer's status, or why there was none; left: the client left first.", "pool", "upstream", "result"),
		wait:             r.Times("kgate_wait_time_seconds", "Time from a request's arrival to the end of its wait, by how the wait ended.", "pool", "outcome"),
		hold:             r.Times("kgate_hold_time_seconds", "Time from a request's admission to the return of its slot.", "pool"),
		upstream:         r.Times("kgate_upstream_response_seconds", "Time from sending a request upstream to the answer's header.", "pool"),
		diskWrite:        r.Times("kgate_disk_write_seconds", "Time to write to data_dir and sync, by what was written.", "what"),
		recoveries:       r.Counters("kgate_recoveries_total", "Epochs that this gateway has entered, by cause.", "pool", "reason"),
		auditFailures:    r.Counters("kgate_token_audit_failures_total", "Audits by this gateway that found tokens lost or doubled.", "pool"),
		leaseLost:        r.Counters("kgate_lease_lost_total", "How often this gateway has lost its lease, and everything in flight with it.")(),
		leaderChanges:    r.Counters("kgate_leader_changes_total", "How often this gateway has seen another gateway become the leader.")(),
		recoveryTime:     r.Times("kgate_recovery_seconds", "How long the start of an epoch kept requests waiting at this gateway.")(),
		commit:           r.Times("kgate_commit_seconds", "How long this gateway waited, as leader, for a majority to store a change.")(),
		batchSize:        r.Sizes("kgate_message_batch_size", "Messages that one write to a peer carried.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}),
		hops:             r.Sizes("kgate_request_hops", "Gateways that forwarded a request for a place in line before it reached the last in line.", []float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64}),
	}
}

// maxCauses bounds the values of a label cause.
const maxCauses = 32

// causes hands out the counters of a label cause. The first maxCauses values
// get one each, all others share one.
type causes struct {
	vec   counters
	other Counter

	mu sync.RWMutex // guards by
	by map[string]Counter
}

func newCauses(vec counters) *causes {
	return &causes{vec: vec, other: vec(other), by: map[string]Counter{}}
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

func (c *causes) add(cause string) Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counter, ok := c.by[cause]; ok {
		return counter
	}
	if len(c.by) >= maxCauses || !isWord(cause) {
		return c.other
	}
	counter := c.vec(cause)
	c.by[cause] = counter
	return counter
}

// isWord reports whether s looks like a constant of the program, and not like text from the network.
func isWord(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 40
}
