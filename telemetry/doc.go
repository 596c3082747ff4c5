// Package telemetry turns what happens in a gateway into Prometheus metrics
// and log lines. Package otlp sends its spans.
//
// # What it promises
//
// All metrics live in the registry that the caller hands in; there are no
// globals. Every label is bounded: pools are those that [Metrics.AddPool]
// named, outcomes, message types and causes come from short lists, and what is
// on none of them counts as "other". Values on the lists are there from the start, at
// 0, so that the first event shows as an increase. Nothing that a client or a peer sends
// makes a new time series. Counting takes no allocation and, through a [Pool]
// handle, no look-up of labels; any number of goroutines may count at once.
//
// What mirrors state (in flight, waiting, tokens, members) is not counted but
// asked for at each scrape, from a [Source], so that it cannot drift.
//
// # Waits
//
// A wait is the time from a request's arrival to its admission, or to the end of its
// wait for another reason: kgate_wait_time_seconds tells them apart by outcome. The
// three kgate_window_* metrics cover the requests admitted in the current second and
// the 59 before it. kgate_oldest_wait_seconds is of who still waits. The spread of all
// gateways together is then
//
//	max({__name__=~"kgate_window_longest_wait_seconds|kgate_oldest_wait_seconds"})
//	  - sum(kgate_window_wait_seconds) / sum(kgate_window_admissions)
//
// provided that more than k requests were admitted.
//
// # Slots
//
// Gauges of different gateways are read at different times, so their sum is no
// moment's. What must not mislead is a counter: the rate of kgate_slot_seconds_total is
// the mean number of slots in use, exactly.
//
// The table in docs/metrics.md lists every metric; a test compares it with the
// registry.
//
// # Logs
//
// [NewLogger] makes the process's logger.
package telemetry
