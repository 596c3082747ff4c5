package grafana

// row is a headed group of panels.
type row struct {
	title  string
	panels []panel
}

// panel is one picture.
type panel struct {
	// id is what links to the panel name it by: it stays, and is not given again.
	id           int
	title, about string
	unit         unit
	kind         kind
	queries      []query
}

// query is one PromQL expression. In it
//
//	{pool}      are the series of the pool, at all gateways of the fleet
//	{gateways}  those of the pool at the chosen gateways
//	{fleet}     series that have no pool, at all gateways
//	{nodes}     those at the chosen gateways
//
// each perhaps followed by more labels: {pool,outcome="admitted"}.
type query struct {
	expr, legend string
	// limit draws a dashed line that is not stacked with the others.
	limit bool
}

// kind is how a panel is drawn.
type kind int

const (
	lines kind = iota
	stacked
	heatmap
)

// unit is Grafana's name of a unit.
type unit string

const (
	seconds   unit = "s"
	perSecond unit = "ops"
	requests  unit = "reqps"
	share     unit = "percentunit"
	number    unit = "none"
	short     unit = "short"
	size      unit = "bytes"
)

// rows is the dashboard, from top to bottom.
var rows = []row{
	{"Is the line fair?", []panel{
		{
			id: 1, title: "Spread of the access times", unit: seconds,
			about: "Longest less mean access time over the last 60 s and over all gateways. Small beside the mean: the line is fair. " +
				"Access time is the time from a request's arrival to its admission.",
			queries: []query{
				{expr: `max(kgate_access_time_window_max_seconds{pool}) - sum(kgate_access_time_window_sum_seconds{pool}) / (sum(kgate_access_time_window_count{pool}) > 0)`, legend: "spread (max - mean)"},
				{expr: `sum(kgate_access_time_window_sum_seconds{pool}) / (sum(kgate_access_time_window_count{pool}) > 0)`, legend: "mean"},
			},
		},
		{
			id: 2, title: "Access times", kind: heatmap, unit: seconds,
			about: "How many requests waited how long, over all gateways. A fair line is a narrow band.",
			queries: []query{
				{expr: `sum by (le) (increase(kgate_access_time_seconds_bucket{pool}[$__rate_interval]))`, legend: "{{le}}"},
			},
		},
	}},
	{"Slots and waiters", []panel{
		{
			id: 3, title: "In flight, against k", kind: stacked, unit: short,
			about: "Requests that hold a slot, by gateway. Gateways are scraped one after the other: a short peak above k is a slot " +
				"that moved between two scrapes. Whether k was exceeded, only the upstream can tell.",
			queries: []query{
				{expr: `sum by (instance) (kgate_in_flight{pool})`, legend: "{{instance}}"},
				{expr: `max(kgate_pool_capacity{pool})`, legend: "k", limit: true},
			},
		},
		{
			id: 4, title: "Waiting", kind: stacked, unit: short,
			about: "Requests that wait for a slot, by the gateway that they came to.",
			queries: []query{
				{expr: `sum by (instance) (kgate_waiting{pool})`, legend: "{{instance}}"},
			},
		},
		{
			id: 5, title: "Utilisation", unit: share,
			about: "Slots in use, as a share of k. Below 100 % while requests wait means slots that nobody uses: look at the tokens, below.",
			queries: []query{
				{expr: `sum(kgate_in_flight{pool}) / max(kgate_pool_capacity{pool})`, legend: "in use"},
			},
		},
		{
			id: 6, title: "Requests by outcome", kind: stacked, unit: requests,
			about: "Requests that have ended. All but admitted and client_gone were refused, or failed upstream.",
			queries: []query{
				{expr: `sum by (outcome) (rate(kgate_requests_total{pool}[$__rate_interval])) > 0`, legend: "{{outcome}}"},
			},
		},
		{
			id: 7, title: "Hold times", unit: seconds,
			about: "How long requests keep their slots. The longer, the longer everybody waits: waiting / k x mean hold is what the next one waits.",
			queries: []query{
				{expr: `sum(rate(kgate_hold_time_seconds_sum{pool}[$__rate_interval])) / sum(rate(kgate_hold_time_seconds_count{pool}[$__rate_interval]))`, legend: "mean"},
				{expr: `histogram_quantile(0.5, sum by (le) (rate(kgate_hold_time_seconds_bucket{pool}[$__rate_interval])))`, legend: "half of them"},
				{expr: `histogram_quantile(0.99, sum by (le) (rate(kgate_hold_time_seconds_bucket{pool}[$__rate_interval])))`, legend: "99 %"},
			},
		},
	}},
	{"Gateways side by side", []panel{
		{
			id: 8, title: "Mean access time, by gateway", unit: seconds,
			about: "Over the last 60 s. With requests at all gateways the lines lie on each other, however unevenly the clients are spread.",
			queries: []query{
				{expr: `kgate_access_time_window_sum_seconds{gateways} / (kgate_access_time_window_count{gateways} > 0)`, legend: "{{instance}}"},
			},
		},
		{
			id: 9, title: "99 % of access times, by gateway", unit: seconds,
			about: "99 % of a gateway's requests waited no longer.",
			queries: []query{
				{expr: `histogram_quantile(0.99, sum by (instance, le) (rate(kgate_access_time_seconds_bucket{gateways}[$__rate_interval])))`, legend: "{{instance}}"},
			},
		},
		{
			id: 10, title: "Longest access time, by gateway", unit: seconds,
			about: "Over the last 60 s.",
			queries: []query{
				{expr: `kgate_access_time_window_max_seconds{gateways}`, legend: "{{instance}}"},
			},
		},
		{
			id: 11, title: "Admissions, by gateway", kind: stacked, unit: requests,
			about: "Who got the slots. That follows where the clients are, and is no measure of fairness.",
			queries: []query{
				{expr: `rate(kgate_access_time_seconds_count{gateways}[$__rate_interval])`, legend: "{{instance}}"},
			},
		},
		{
			id: 31, title: "Overtaken, by gateway", kind: stacked, unit: requests,
			about: "Requests that were admitted after one that had come to the same gateway later. With order: fair that is what was asked for; " +
				"with fifo it happens when the line is formed anew, and not otherwise.",
			queries: []query{
				{expr: `rate(kgate_inversions_total{gateways}[$__rate_interval])`, legend: "{{instance}}"},
			},
		},
	}},
	{"Upstreams", []panel{
		{
			id: 12, title: "Time to the answer's header", unit: seconds,
			about: "From sending a request upstream to the header of its answer.",
			queries: []query{
				{expr: `histogram_quantile(0.5, sum by (le) (rate(kgate_upstream_response_seconds_bucket{pool}[$__rate_interval])))`, legend: "half of them"},
				{expr: `histogram_quantile(0.99, sum by (le) (rate(kgate_upstream_response_seconds_bucket{pool}[$__rate_interval])))`, legend: "99 %"},
			},
		},
		{
			id: 13, title: "Unanswered, by cause", kind: stacked, unit: requests,
			about: "Requests that an upstream did not answer: no connection (dial), no answer in time (timeout), the connection broke (broken).",
			queries: []query{
				{expr: `sum by (cause) (rate(kgate_upstream_errors_total{pool}[$__rate_interval]))`, legend: "{{cause}}"},
			},
		},
		{
			id: 32, title: "In order, by upstream", unit: share,
			about: "Share of the gateways that hold the upstream to be in order. Nothing is sent to one that is not, while another is.",
			queries: []query{
				{expr: `avg by (upstream) (kgate_upstream_healthy{pool})`, legend: "{{upstream}}"},
			},
		},
	}},
	{"What the order costs", []panel{
		{
			id: 14, title: "Messages per admission", unit: number,
			about: "Messages between gateways for each request that was let in. 0: the gateway with the baton admits its own clients alone.",
			queries: []query{
				{expr: `sum(rate(kgate_messages_total{pool,direction="sent"}[$__rate_interval])) / (sum(rate(kgate_access_time_seconds_count{pool}[$__rate_interval])) > 0)`, legend: "messages"},
			},
		},
		{
			id: 15, title: "Messages by type", kind: stacked, unit: perSecond,
			about: "Messages that gateways have sent to each other.",
			queries: []query{
				{expr: `sum by (type) (rate(kgate_messages_total{pool,direction="sent"}[$__rate_interval]))`, legend: "{{type}}"},
			},
		},
		{
			id: 16, title: "Hops of a request for a place", unit: number,
			about: "Gateways that forwarded a request for a place in line before it reached the last in line; all pools together.",
			queries: []query{
				{expr: `sum(rate(kgate_request_hops_sum{fleet}[$__rate_interval])) / sum(rate(kgate_request_hops_count{fleet}[$__rate_interval]))`, legend: "mean"},
				{expr: `histogram_quantile(0.99, sum by (le) (rate(kgate_request_hops_bucket{fleet}[$__rate_interval])))`, legend: "99 %"},
			},
		},
		{
			id: 17, title: "Messages in one write", unit: number,
			about: "Mean number of messages that one write to another gateway carried; all pools together.",
			queries: []query{
				{expr: `sum(rate(kgate_message_batch_size_sum{fleet}[$__rate_interval])) / sum(rate(kgate_message_batch_size_count{fleet}[$__rate_interval]))`, legend: "messages"},
			},
		},
		{
			id: 18, title: "Moves of the baton", kind: stacked, unit: perSecond,
			about: "How often the baton goes on, by the gateway that it leaves.",
			queries: []query{
				{expr: `rate(kgate_baton_moves_total{gateways}[$__rate_interval])`, legend: "{{instance}}"},
			},
		},
		{
			id: 19, title: "Where the baton was", kind: stacked, unit: share,
			about: "Share of the scrapes that found the baton there. The rest of the time it was on its way.",
			queries: []query{
				{expr: `avg_over_time(kgate_baton_held{gateways}[$__rate_interval])`, legend: "{{instance}}"},
			},
		},
	}},
	{"Coming, going and failing", []panel{
		{
			id: 20, title: "Gateways by status", unit: short,
			about: "As the gateways agree on it; and how many of them Prometheus reaches.",
			queries: []query{
				{expr: `max by (status) (kgate_members{fleet})`, legend: "{{status}}"},
				{expr: `sum(up{fleet})`, legend: "scraped", limit: true},
			},
		},
		{
			id: 21, title: "Agreed view, by gateway", unit: number,
			about: "A step is a gateway that came or went, or a change of k. Lines that stay apart are gateways that do not reach each other.",
			queries: []query{
				{expr: `kgate_view_epoch{nodes}`, legend: "{{instance}}"},
			},
		},
		{
			id: 22, title: "Lease left, by gateway", unit: seconds,
			about: "How long a gateway may go on without hearing from the majority. At 0 it admits nothing.",
			queries: []query{
				{expr: `kgate_lease_remaining_seconds{nodes}`, legend: "{{instance}}"},
			},
		},
		{
			id: 23, title: "Tokens by state", kind: stacked, unit: short,
			about: "running: in use; free: at some gateway; quarantined: withheld, because a lost gateway may still use them. " +
				"What is missing from k is on its way between gateways.",
			queries: []query{
				{expr: `sum by (state) (kgate_tokens{pool})`, legend: "{{state}}"},
				{expr: `max(kgate_pool_capacity{pool})`, legend: "k", limit: true},
			},
		},
		{
			id: 24, title: "Lines formed anew, leases lost, audits failed", unit: short,
			about: "Recoveries by what made them necessary; leases lost, with all that was in flight at that gateway; " +
				"audits that found tokens lost or doubled, which never happens without a defect.",
			queries: []query{
				{expr: `sum by (reason) (increase(kgate_recoveries_total{pool}[$__rate_interval]))`, legend: "recovery: {{reason}}"},
				{expr: `sum(increase(kgate_lease_lost_total{fleet}[$__rate_interval]))`, legend: "lease lost"},
				{expr: `sum(increase(kgate_token_audit_failures_total{pool}[$__rate_interval]))`, legend: "audit failed"},
			},
		},
		{
			id: 25, title: "Time to form the line anew", unit: seconds,
			about: "How long requests were kept waiting by it; all pools together.",
			queries: []query{
				{expr: `sum(rate(kgate_recovery_seconds_sum{fleet}[$__rate_interval])) / (sum(rate(kgate_recovery_seconds_count{fleet}[$__rate_interval])) > 0)`, legend: "mean"},
				{expr: `histogram_quantile(0.99, sum by (le) (rate(kgate_recovery_seconds_bucket{fleet}[$__rate_interval]))) >= 0`, legend: "99 %"},
			},
		},
		{
			id: 33, title: "Copies of tickets that are behind", unit: short,
			about: "Changes of tickets that a gateway keeps a copy of and has not acknowledged yet, by that gateway; all pools together.",
			queries: []query{
				{expr: `sum by (successor) (kgate_replica_lag{fleet})`, legend: "{{successor}}"},
			},
		},
		{
			id: 26, title: "Refused at the peer port, by cause", kind: stacked, unit: perSecond,
			about: "What came in from other gateways, or who pretends to be one, and was refused.",
			queries: []query{
				{expr: `sum by (cause) (rate(kgate_peer_refused_total{fleet}[$__rate_interval]))`, legend: "{{cause}}"},
			},
		},
	}},
	{"Processes", []panel{
		{
			id: 27, title: "CPU", unit: short,
			about: "Cores that each gateway keeps busy.",
			queries: []query{
				{expr: `rate(process_cpu_seconds_total{nodes}[$__rate_interval])`, legend: "{{instance}}"},
			},
		},
		{
			id: 28, title: "Memory", unit: size,
			about: "Resident memory. A waiting request takes about 30 KiB.",
			queries: []query{
				{expr: `process_resident_memory_bytes{nodes}`, legend: "{{instance}}"},
			},
		},
		{
			id: 29, title: "Open files", unit: share,
			about: "File descriptors in use, as a share of the limit. Every connection of a client takes one, and every one to an upstream.",
			queries: []query{
				{expr: `process_open_fds{nodes} / process_max_fds{nodes}`, legend: "{{instance}}"},
			},
		},
		{
			id: 30, title: "Goroutines", unit: short,
			about: "They come and go with the connections; a line that only rises is a leak.",
			queries: []query{
				{expr: `go_goroutines{nodes}`, legend: "{{instance}}"},
			},
		},
		{
			id: 34, title: "Spans for the collector", kind: stacked, unit: perSecond,
			about: "Spans of sampled requests, and whether the collector has taken them. Empty without telemetry.otlp_endpoint.",
			queries: []query{
				{expr: `sum by (result) (rate(kgate_trace_spans_total{fleet}[$__rate_interval]))`, legend: "{{result}}"},
			},
		},
	}},
}
