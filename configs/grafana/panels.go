package grafana

import "strings"

// row is a headed group of panels.
type row struct {
	title string
	// scope says what its panels are of.
	scope  scope
	panels []panel
}

// scope of a row: what the variable $gateway means to it.
type scope string

const (
	ofFleet  scope = "all gateways"    // $gateway does not count
	ofChosen scope = "chosen gateways" // $gateway filters every panel
)

// panel is one picture.
type panel struct {
	// id is what links to the panel name it by: it stays, and is not given again.
	id           int
	title, about string
	unit         unit
	kind         kind
	// thresholds of a stat: from which value on it has which colour.
	thresholds []threshold
	queries    []query
}

// threshold is a colour from a value on.
type threshold struct {
	from   float64
	colour string
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
	// exemplars marks sampled requests, which lead to their traces.
	exemplars bool
}

// quantile asks for a quantile of a histogram of times, whether Prometheus has scraped
// native buckets or classic ones. by are labels to keep, each with a comma behind it.
func quantile(q, metric, by string) string {
	const form = `histogram_quantile(Q, sum BYNATIVE(rate(METRIC[$__rate_interval]))) or histogram_quantile(Q, sum by (BYle) (rate(METRICBUCKET[$__rate_interval])))`
	name, labels, _ := strings.Cut(metric, "{")
	native := ""
	if by != "" {
		native = "by (" + strings.TrimSuffix(by, ", ") + ") "
	}
	return strings.NewReplacer("METRICBUCKET", name+"_bucket{"+labels, "METRIC", metric, "BYNATIVE", native, "BY", by, "Q", q).Replace(form)
}

// mean asks for the mean of a histogram of times, of either kind.
func mean(metric string) string {
	const form = `histogram_sum(sum(rate(METRIC[$__rate_interval]))) / (histogram_count(sum(rate(METRIC[$__rate_interval]))) > 0) or sum(rate(NAME_sum{LABELS[$__rate_interval])) / (sum(rate(NAME_count{LABELS[$__rate_interval])) > 0)`
	name, labels, _ := strings.Cut(metric, "{")
	return strings.NewReplacer("METRIC", metric, "NAME", name, "LABELS", labels).Replace(form)
}

// inUse is the mean number of slots in use since the last scrapes, exactly; the
// gateways' scrapes are not at one moment, and what that adds above k is cut off.
const inUse = `clamp_max(sum(rate(kgate_slot_seconds_total{pool}[$__rate_interval])), scalar(max(kgate_pool_capacity{pool})))`

// Pages that the panels link to.
const (
	runbook = "https://github.com/kgate/kgate/blob/main/docs/alerts.md"
	words   = "https://github.com/kgate/kgate/blob/main/docs/metrics.md"
)

// kind is how a panel is drawn.
type kind int

const (
	lines kind = iota
	stacked
	heatmap
	stat
)

// unit is Grafana's name of a unit.
type unit string

const (
	seconds        unit = "s"
	perSecond      unit = "ops"
	requests       unit = "reqps"
	share          unit = "percentunit"
	number         unit = "none"
	short          unit = "short"
	size           unit = "bytes"
	bytesPerSecond unit = "Bps"
)

// rows is the dashboard, from top to bottom.
var rows = []row{
	{"Now", ofFleet, []panel{
		{
			id: 40, title: "Oldest wait", unit: seconds, kind: stat, thresholds: []threshold{{0, "green"}, {10, "orange"}, {60, "red"}},
			about:   "How long the request has waited that has waited longest, and at which gateway. It rises for as long as nobody is admitted.",
			queries: []query{{expr: `topk(1, kgate_oldest_wait_seconds{pool})`, legend: "at {{gateway}}"}},
		},
		{
			id: 41, title: "Waiting", unit: short, kind: stat, thresholds: []threshold{{0, "green"}, {1, "blue"}},
			about:   "Requests that wait for a slot, over all gateways.",
			queries: []query{{expr: `sum(kgate_waiting{pool})`, legend: "requests"}},
		},
		{
			id: 42, title: "Fullest queue", unit: share, kind: stat, thresholds: []threshold{{0, "green"}, {0.5, "orange"}, {0.9, "red"}},
			about:   "Waiting requests as a share of queue.limit, at the gateway where it is largest. At 100 % that gateway refuses.",
			queries: []query{{expr: `topk(1, kgate_waiting{pool} / kgate_queue_limit{pool})`, legend: "at {{gateway}}"}},
		},
		{
			id: 43, title: "Slots in use", unit: share, kind: stat, thresholds: []threshold{{0, "green"}, {0.9, "blue"}},
			about:   "Mean share of the k slots that were in use since the last scrapes.",
			queries: []query{{expr: inUse + ` / max(kgate_pool_capacity{pool})`, legend: "of k"}},
		},
		{
			id: 44, title: "Gateways ready", unit: short, kind: stat, thresholds: []threshold{{0, "red"}, {1, "green"}},
			about: "Gateways that admit requests: scraped, with a lease, and not draining; and how many the cluster has beside them, lost ones too.",
			queries: []query{
				{expr: `count((kgate_lease_remaining_seconds{fleet} > 0) and on (instance) (kgate_draining{fleet} == 0)) or vector(0)`, legend: "ready"},
				{expr: `max(sum by (instance) (kgate_members{fleet})) - (count((kgate_lease_remaining_seconds{fleet} > 0) and on (instance) (kgate_draining{fleet} == 0)) or vector(0))`, legend: "missing"},
			},
		},
		{
			id: 45, title: "Refused", unit: requests, kind: stat, thresholds: []threshold{{0, "green"}, {0.001, "orange"}, {1, "red"}},
			about:   "Requests that got no slot: the queue was full, they waited too long, their gateway drains or is cut off, and so on.",
			queries: []query{{expr: `sum(rate(kgate_requests_total{pool,outcome!~"admitted|client_gone|upstream_error"}[$__rate_interval]))`, legend: "a second"}},
		},
		{
			id: 46, title: "Alerts", unit: short, kind: stat, thresholds: []threshold{{0, "green"}, {1, "red"}},
			about:   "Alerts of this fleet that fire. A click leads to what each means and what to do.",
			queries: []query{{expr: `count(ALERTS{alertname=~"Kgate.*",alertstate="firing",job="$job"}) or vector(0)`, legend: "firing"}},
		},
	}},
	{"Is the line fair?", ofFleet, []panel{
		{
			id: 1, title: "Spread of the waits", unit: seconds,
			about: "Longest wait less mean wait of the requests admitted in the last 60 s; a request that still waits counts among the longest. " +
				"Small beside the mean: the line is fair. While nobody is admitted it rises with the oldest wait.",
			queries: []query{
				{expr: `max({__name__=~"kgate_window_longest_wait_seconds|kgate_oldest_wait_seconds",pool}) - sum(kgate_window_wait_seconds{pool}) / clamp_min(sum(kgate_window_admissions{pool}), 1)`, legend: "spread"},
				{expr: `sum(kgate_window_wait_seconds{pool}) / (sum(kgate_window_admissions{pool}) > 0)`, legend: "mean wait"},
				{expr: `max(kgate_oldest_wait_seconds{pool})`, legend: "oldest wait"},
			},
		},
		{
			id: 2, title: "Waits of the admitted", kind: heatmap, unit: seconds,
			about: "How many requests waited how long until they were admitted. A fair line is a narrow band.",
			queries: []query{
				{expr: `sum(increase(kgate_wait_time_seconds{pool,outcome="admitted"}[$__rate_interval])) or sum by (le) (increase(kgate_wait_time_seconds_bucket{pool,outcome="admitted"}[$__rate_interval]))`, legend: "{{le}}", exemplars: true},
			},
		},
		{
			id: 35, title: "Waits by how they ended", unit: seconds,
			about: "99 % of the waits that ended so were no longer. timeout, client_gone and the like waited in vain.",
			queries: []query{
				{expr: quantile("0.99", `kgate_wait_time_seconds{pool}`, "outcome, "), legend: "{{outcome}}", exemplars: true},
			},
		},
	}},
	{"Slots and waiting requests", ofFleet, []panel{
		{
			id: 3, title: "Slots in use, by gateway", kind: stacked, unit: short,
			about: "Mean number of slots in use between scrapes, from a counter of slot-seconds: exact, never above k unless k was exceeded at one gateway alone. " +
				"Scrapes are not at one moment; what that adds above k is taken off in proportion.",
			queries: []query{
				{expr: `sum by (gateway, instance) (rate(kgate_slot_seconds_total{pool}[$__rate_interval])) * scalar(` + inUse + ` / sum(rate(kgate_slot_seconds_total{pool}[$__rate_interval])) or vector(0))`, legend: "{{gateway}}"},
				{expr: `max(kgate_pool_capacity{pool})`, legend: "k", limit: true},
			},
		},
		{
			id: 4, title: "Waiting, by gateway", kind: stacked, unit: short,
			about: "Requests that wait for a slot, by the gateway that they came to.",
			queries: []query{
				{expr: `sum by (gateway, instance) (kgate_waiting{pool})`, legend: "{{gateway}}"},
			},
		},
		{
			id: 5, title: "Utilisation", unit: share,
			about: "Slots in use, as a share of k. Below 100 % while requests wait means slots that nobody uses: look at the tokens, below.",
			queries: []query{
				{expr: inUse + ` / max(kgate_pool_capacity{pool})`, legend: "in use"},
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
				{expr: mean(`kgate_hold_time_seconds{pool}`), legend: "mean"},
				{expr: quantile("0.5", `kgate_hold_time_seconds{pool}`, ""), legend: "50 %"},
				{expr: quantile("0.99", `kgate_hold_time_seconds{pool}`, ""), legend: "99 %"},
			},
		},
		{
			id: 36, title: "Tickets", kind: stacked, unit: short,
			about: "Tickets of the API, which are among the waiting and among the slots in use.",
			queries: []query{
				{expr: `sum by (state) (kgate_tickets{pool})`, legend: "{{state}}"},
			},
		},
	}},
	{"Gateways side by side", ofChosen, []panel{
		{
			id: 8, title: "Mean wait", unit: seconds,
			about: "Of the requests admitted in the last 60 s. With requests at all gateways the lines lie on each other, however unevenly the clients are spread.",
			queries: []query{
				{expr: `kgate_window_wait_seconds{gateways} / (kgate_window_admissions{gateways} > 0)`, legend: "{{gateway}}"},
			},
		},
		{
			id: 9, title: "99 % of waits", unit: seconds,
			about: "99 % of a gateway's admitted requests waited no longer.",
			queries: []query{
				{expr: quantile("0.99", `kgate_wait_time_seconds{gateways,outcome="admitted"}`, "gateway, instance, "), legend: "{{gateway}}"},
			},
		},
		{
			id: 10, title: "Oldest wait, by gateway", unit: seconds,
			about: "How long the oldest waiting request of each gateway has waited.",
			queries: []query{
				{expr: `kgate_oldest_wait_seconds{gateways}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 11, title: "Admissions", kind: stacked, unit: requests,
			about: "Which gateways got the slots. That follows where the clients are, and is no measure of fairness.",
			queries: []query{
				{expr: `rate(kgate_admissions_total{gateways}[$__rate_interval])`, legend: "{{gateway}}"},
			},
		},
		{
			id: 31, title: "Overtaken", kind: stacked, unit: requests,
			about: "Requests that were admitted after one that had come to the same gateway later. With order: fair that is intended; " +
				"with fifo it happens when a new epoch begins, and not otherwise.",
			queries: []query{
				{expr: `rate(kgate_inversions_total{gateways}[$__rate_interval])`, legend: "{{gateway}}"},
			},
		},
		{
			id: 37, title: "Answers by status code", kind: stacked, unit: requests,
			about: "What clients were answered; 499: the client left before there was an answer.",
			queries: []query{
				{expr: `sum by (code) (rate(kgate_responses_total{gateways}[$__rate_interval])) > 0`, legend: "{{code}}"},
			},
		},
		{
			id: 38, title: "Bytes", unit: bytesPerSecond,
			about: "Bodies of requests and answers, without upgraded connections.",
			queries: []query{
				{expr: `sum(rate(kgate_request_bytes_total{gateways}[$__rate_interval]))`, legend: "from clients"},
				{expr: `sum(rate(kgate_response_bytes_total{gateways}[$__rate_interval]))`, legend: "to clients"},
			},
		},
		{
			id: 39, title: "Connections of clients", kind: stacked, unit: short,
			about: "Open connections, of all pools.",
			queries: []query{
				{expr: `kgate_client_connections{nodes}`, legend: "{{gateway}}"},
			},
		},
	}},
	{"Upstreams", ofChosen, []panel{
		{
			id: 12, title: "Time to the answer's header", unit: seconds,
			about: "From sending a request upstream to the header of its answer.",
			queries: []query{
				{expr: quantile("0.5", `kgate_upstream_response_seconds{gateways}`, ""), legend: "50 %"},
				{expr: quantile("0.99", `kgate_upstream_response_seconds{gateways}`, ""), legend: "99 %"},
			},
		},
		{
			id: 13, title: "Unanswered, by cause", kind: stacked, unit: requests,
			about: "Requests that an upstream did not answer: no connection (dial), no answer in time (timeout), the connection broke (broken). retry: sent to another upstream.",
			queries: []query{
				{expr: `sum by (cause) (rate(kgate_upstream_errors_total{gateways}[$__rate_interval]))`, legend: "{{cause}}"},
				{expr: `sum(rate(kgate_upstream_retries_total{gateways}[$__rate_interval]))`, legend: "retry"},
			},
		},
		{
			id: 32, title: "Healthy, by upstream", unit: share,
			about: "Share of the gateways that take the upstream for healthy. Nothing is sent to one that is not, while another is.",
			queries: []query{
				{expr: `avg by (upstream) (kgate_upstream_healthy{gateways})`, legend: "{{upstream}}"},
			},
		},
	}},
	{"What the order costs", ofChosen, []panel{
		{
			id: 14, title: "Messages per admission", unit: number,
			about: "Messages between gateways for each request that was admitted. 0: the gateway with the baton admits its own clients alone.",
			queries: []query{
				{expr: `sum(rate(kgate_messages_total{gateways,direction="sent"}[$__rate_interval])) / (sum(rate(kgate_admissions_total{gateways}[$__rate_interval])) > 0)`, legend: "messages"},
			},
		},
		{
			id: 15, title: "Messages by type", kind: stacked, unit: perSecond,
			about: "Messages that gateways have sent to each other.",
			queries: []query{
				{expr: `sum by (type) (rate(kgate_messages_total{gateways,direction="sent"}[$__rate_interval]))`, legend: "{{type}}"},
			},
		},
		{
			id: 16, title: "Hops of a request for a place", unit: number,
			about: "Gateways that forwarded a request for a place in line before it reached the last in line; all pools together.",
			queries: []query{
				{expr: `sum(rate(kgate_request_hops_sum{nodes}[$__rate_interval])) / sum(rate(kgate_request_hops_count{nodes}[$__rate_interval]))`, legend: "mean"},
				{expr: `histogram_quantile(0.99, sum by (le) (rate(kgate_request_hops_bucket{nodes}[$__rate_interval])))`, legend: "99 %"},
			},
		},
		{
			id: 17, title: "Messages in one write", unit: number,
			about: "Mean number of messages that one write to another gateway carried; all pools together.",
			queries: []query{
				{expr: `sum(rate(kgate_message_batch_size_sum{nodes}[$__rate_interval])) / sum(rate(kgate_message_batch_size_count{nodes}[$__rate_interval]))`, legend: "messages"},
			},
		},
		{
			id: 18, title: "Moves of the baton", kind: stacked, unit: perSecond,
			about: "How often the baton goes on, by the gateway that it leaves.",
			queries: []query{
				{expr: `rate(kgate_baton_moves_total{gateways}[$__rate_interval])`, legend: "{{gateway}}"},
			},
		},
		{
			id: 19, title: "Where the baton was", kind: stacked, unit: share,
			about: "Share of the scrapes that found the baton there. Of two gateways that claim it at one time the one with the higher number has it.",
			queries: []query{
				{expr: `avg_over_time((kgate_baton_number{gateways} == bool on () group_left () max(kgate_baton_number{pool} > 0))[$__rate_interval:])`, legend: "{{gateway}}"},
			},
		},
	}},
	{"The cluster", ofFleet, []panel{
		{
			id: 20, title: "Gateways by status", unit: short,
			about: "As the gateways agree on it; and how many of them Prometheus reaches. lost: gone without a word, and not back.",
			queries: []query{
				{expr: `max by (status) (kgate_members{fleet})`, legend: "{{status}}"},
				{expr: `sum(up{fleet})`, legend: "scraped", limit: true},
			},
		},
		{
			id: 47, title: "Voters", unit: short,
			about: "Gateways that vote on views, and how many of them may be lost now while the others still agree. Below 0 nothing is agreed on.",
			queries: []query{
				{expr: `max(kgate_voters{fleet})`, legend: "voters"},
				{expr: `min(kgate_losses_tolerated{fleet})`, legend: "losses tolerated"},
			},
		},
		{
			id: 23, title: "Tokens by state", kind: stacked, unit: short,
			about: "running: in use; free: at some gateway; withheld: not to be had, because a lost gateway may still use them. " +
				"What is missing from k is on its way between gateways. Read from gateways one after the other: a token that moves may be counted twice or not at all.",
			queries: []query{
				{expr: `clamp_max(sum by (state) (kgate_tokens{pool}), scalar(max(kgate_pool_capacity{pool})))`, legend: "{{state}}"},
				{expr: `max(kgate_pool_capacity{pool})`, legend: "k", limit: true},
			},
		},
		{
			id: 24, title: "New epochs, leases lost, audits failed", unit: short,
			about: "New epochs by what made them necessary; leases lost, with all that was in flight at that gateway; " +
				"audits that found tokens lost or doubled, which never happens without a defect; changes of the leader.",
			queries: []query{
				{expr: `max by (reason) (increase(kgate_recoveries_total{pool}[$__rate_interval]))`, legend: "epoch: {{reason}}"},
				{expr: `sum(increase(kgate_lease_lost_total{fleet}[$__rate_interval]))`, legend: "lease lost"},
				{expr: `sum(increase(kgate_token_audit_failures_total{pool}[$__rate_interval]))`, legend: "audit failed"},
				{expr: `max(increase(kgate_leader_changes_total{fleet}[$__rate_interval]))`, legend: "leader changed"},
			},
		},
		{
			id: 25, title: "Time to start an epoch", unit: seconds,
			about: "How long requests were kept waiting by it; all pools together.",
			queries: []query{
				{expr: mean(`kgate_recovery_seconds{fleet}`), legend: "mean"},
				{expr: quantile("0.99", `kgate_recovery_seconds{fleet}`, "") + ` >= 0`, legend: "99 %"},
			},
		},
		{
			id: 33, title: "Copies of tickets that are behind", unit: short,
			about: "Changes of tickets that a gateway keeps a copy of and has not acknowledged yet, by that gateway; all pools together.",
			queries: []query{
				{expr: `sum by (successor) (kgate_replica_lag{fleet})`, legend: "{{successor}}"},
			},
		},
	}},
	{"Each gateway in the cluster", ofChosen, []panel{
		{
			id: 21, title: "Agreed view", unit: number,
			about: "A step is a gateway that came or went, or a change of k. Lines that stay apart are gateways that do not reach each other.",
			queries: []query{
				{expr: `kgate_view_epoch{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 22, title: "Lease left", unit: seconds,
			about: "How long a gateway may go on without hearing from the majority. At 0 it admits nothing.",
			queries: []query{
				{expr: `kgate_lease_remaining_seconds{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 48, title: "Leader and voters", kind: stacked, unit: short,
			about: "2: it leads; 1: it votes; 0: it follows.",
			queries: []query{
				{expr: `kgate_voter{nodes} + kgate_leader{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 49, title: "Links that are down", kind: stacked, unit: short,
			about: "Links to other gateways that should be up, by the gateway that tells.",
			queries: []query{
				{expr: `count by (gateway, instance) (kgate_peer_link_up{nodes} == 0) or 0 * kgate_voter{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 50, title: "Round trip to other gateways", unit: seconds,
			about: "The slowest link of each gateway.",
			queries: []query{
				{expr: `max by (gateway, instance) (kgate_peer_rtt_seconds{nodes})`, legend: "{{gateway}}"},
			},
		},
		{
			id: 51, title: "Writes to disk, agreement", unit: seconds,
			about: "99 % took no longer: writing to data_dir, sync included, and agreeing on a change, at the leader.",
			queries: []query{
				{expr: quantile("0.99", `kgate_disk_write_seconds{nodes}`, "what, "), legend: "disk: {{what}}"},
				{expr: quantile("0.99", `kgate_commit_seconds{nodes}`, ""), legend: "agreement"},
			},
		},
		{
			id: 26, title: "Refused at the peer port, by cause", kind: stacked, unit: perSecond,
			about: "Connections and messages that were refused: not from a gateway of this cluster, or broken.",
			queries: []query{
				{expr: `sum by (cause) (rate(kgate_peer_refused_total{nodes}[$__rate_interval])) > 0 or sum(rate(kgate_peer_refused_total{nodes}[$__rate_interval]))`, legend: "{{cause}}"},
			},
		},
	}},
	{"Processes", ofChosen, []panel{
		{
			id: 27, title: "CPU", unit: short,
			about: "Cores that each gateway keeps busy.",
			queries: []query{
				{expr: `rate(process_cpu_seconds_total{nodes}[$__rate_interval])`, legend: "{{gateway}}"},
			},
		},
		{
			id: 28, title: "Memory", unit: size,
			about: "Resident memory. A waiting request takes about 30 KiB.",
			queries: []query{
				{expr: `process_resident_memory_bytes{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 29, title: "Open files", unit: share,
			about: "File descriptors in use, as a share of the limit. Every connection of a client takes one, and every one to an upstream.",
			queries: []query{
				{expr: `process_open_fds{nodes} / process_max_fds{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 30, title: "Goroutines", unit: short,
			about: "They come and go with the connections; a line that only rises is a leak.",
			queries: []query{
				{expr: `go_goroutines{nodes}`, legend: "{{gateway}}"},
			},
		},
		{
			id: 52, title: "Certificates and configuration", unit: "d",
			about: "Days until a certificate expires, and since the configuration was last read without an error; -1: the newest could not be used.",
			queries: []query{
				{expr: `(kgate_certificate_expiry_timestamp_seconds{nodes} - time()) / 86400`, legend: "{{gateway}}, certificate for {{use}}"},
				{expr: `(time() - kgate_config_last_reload_success_timestamp_seconds{nodes}) / 86400 unless kgate_config_last_reload_successful{nodes} == 0 or kgate_config_last_reload_successful{nodes} - 1`, legend: "{{gateway}}, configuration"},
			},
		},
		{
			id: 34, title: "Spans for the collector", kind: stacked, unit: perSecond,
			about: "Spans of sampled requests, and whether the collector has taken them. Empty without telemetry.otlp_endpoint.",
			queries: []query{
				{expr: `sum by (result) (rate(kgate_trace_spans_total{nodes}[$__rate_interval]))`, legend: "{{result}}"},
			},
		},
	}},
}
