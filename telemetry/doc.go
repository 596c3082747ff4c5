// Package telemetry counts the events of a gateway for Prometheus metrics and writes its log lines.
// Package otlp sends its spans.
//
// # What it promises
//
// All metrics live in the registry that the caller hands in; there are no
// globals. Every label is bounded: [Metrics.AddPool] names the pools; outcomes, message types and
// causes come from short lists, and any other value counts as "other". The counters of listed values
// begin at 0 at the start, so that the first event shows as an increase. Nothing that a client or a
// peer sends makes a new time series. Counting takes no allocation and, through a [Pool] handle, no
// look-up of labels; any number of goroutines may count at once.
//
// Metrics of state (in flight, waiting, tokens, members) are not counted but read at each scrape,
// from a [Source], so they cannot drift.
//
// # Waits
//
// A wait is the time from a request's arrival to its admission, or to the end of its
// wait for another reason: kgate_wait_time_seconds tells them apart by outcome. The
// three kgate_window_* metrics cover the requests admitted in the current second and
// the 59 before it. kgate_oldest_wait_seconds is the age of the oldest waiting request. The spread of
// all gateways together is then
//
//	max({__name__=~"kgate_window_longest_wait_seconds|kgate_oldest_wait_seconds"})
//	  - sum(kgate_window_wait_seconds) / sum(kgate_window_admissions)
//
// provided that more than k requests were admitted.
//
// # Slots
//
// Gauges of different gateways are read at different times, so their sum belongs to no moment. So
// the slots in use are a counter, too: the rate of kgate_slot_seconds_total is exactly their mean
// number.
//
// The table in docs/metrics.md lists every metric; a test compares it with the
// registry.
//
// # Logs
//
// [NewLogger] makes the process's logger.
package telemetry
