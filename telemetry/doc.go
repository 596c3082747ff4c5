// Package telemetry turns what happens in a gateway into Prometheus metrics
// and log lines, and brings its spans to an OpenTelemetry collector.
//
// # What it promises
//
// All metrics live in the registry that the caller hands in; there are no
// globals. Every label is bounded: pools are those that [Metrics.AddPool]
// named, outcomes, message types and causes come from short lists, and what is
// on none of them counts as "other". So nothing that a client or a peer sends
// makes a new time series. Counting takes no allocation and, through a [Pool]
// handle, no look-up of labels; any number of goroutines may count at once.
//
// What mirrors state (in flight, waiting, tokens, members) is not counted but
// asked for at each scrape, from a [Source], so that it cannot drift.
//
// # Access time
//
// Access time is the time from a request's arrival to its admission. The
// histogram covers the gateway's life. The three kgate_access_time_window_*
// metrics cover the current second and the 59 before it, all three the same
// observations: an observation counts for at least 59 and at most 60 seconds.
// The spread of all gateways together, the longest access time less the mean,
// is then
//
//	max(kgate_access_time_window_max_seconds)
//	  - sum(kgate_access_time_window_sum_seconds) / sum(kgate_access_time_window_count)
//
// The table in docs/metrics.md lists every metric; a test compares it with the
// registry.
//
// # Traces
//
// [NewTracing] makes the OpenTelemetry tracer whose spans go out as OTLP. Which
// requests get spans, and what is in them, is package proxy's. The queue of spans
// is bounded and nobody waits for the collector.
//
// # Logs
//
// [NewLogger] makes the process's logger.
package telemetry
