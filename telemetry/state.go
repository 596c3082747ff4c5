package telemetry

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Source tells what state the gateway is in. It is asked once per scrape, by
// several goroutines perhaps, and should answer at once.
type Source interface {
	State() State
}

// State of a gateway at one moment.
type State struct {
	// View is the number of the agreed view.
	View uint64
	// Members counts the gateways of the cluster by status, a short list of
	// words such as active.
	Members map[string]int
	// Lease is how long this gateway may still admit without a renewal; 0: it
	// has no lease.
	Lease time.Duration
	// ReplicaLag is, for each gateway that keeps copies of this one's tickets,
	// how many changes it has not acknowledged yet.
	ReplicaLag map[string]int
	Pools      []PoolState
}

// PoolState is the state of one pool as this gateway sees it.
type PoolState struct {
	Name string
	// Capacity is the agreed k.
	Capacity int
	// InFlight and Waiting count this gateway's requests.
	InFlight, Waiting int
	BatonHeld         bool
	// TokensRunning are in the critical section here, TokensFree are free
	// here. TokensQuarantined are withheld from all gateways, because a lost one
	// may still use them; the pool's home alone counts them.
	TokensRunning, TokensFree, TokensQuarantined int
	// Upstreams of the pool, by URL, and whether they are in order.
	Upstreams map[string]bool
}

var (
	capacityDesc  = desc("kgate_pool_capacity", "Requests that may be in flight over all gateways together (k).", "pool")
	inFlightDesc  = desc("kgate_in_flight", "Requests of this gateway that hold a slot.", "pool")
	waitingDesc   = desc("kgate_waiting", "Requests of this gateway that wait for a slot.", "pool")
	batonDesc     = desc("kgate_baton_held", "1 while this gateway holds the baton, else 0.", "pool")
	tokensDesc    = desc("kgate_tokens", "Tokens at this gateway, by state.", "pool", "state")
	viewDesc      = desc("kgate_view_epoch", "Number of the agreed view that this gateway follows.")
	leaseDesc     = desc("kgate_lease_remaining_seconds", "How long this gateway may still admit without a renewal of its lease.")
	membersDesc   = desc("kgate_members", "Gateways in the cluster, by status, as this gateway sees it.", "status")
	lagDesc       = desc("kgate_replica_lag", "Changes of tickets that a successor has not acknowledged yet.", "successor")
	healthyDesc   = desc("kgate_upstream_healthy", "1 if this gateway holds the upstream to be in order, else 0.", "pool", "upstream")
	windowMax     = desc("kgate_access_time_window_max_seconds", "Longest access time of the last 60 seconds.", "pool")
	windowSum     = desc("kgate_access_time_window_sum_seconds", "Sum of the access times of the last 60 seconds.", "pool")
	windowCount   = desc("kgate_access_time_window_count", "Number of the access times of the last 60 seconds.", "pool")
	mirroredDescs = []*prometheus.Desc{
		capacityDesc, inFlightDesc, waitingDesc, batonDesc, tokensDesc, viewDesc, leaseDesc, membersDesc,
		lagDesc, healthyDesc, windowMax, windowSum, windowCount,
	}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// stateCollector reads what mirrors state, at each scrape.
type stateCollector struct{ m *Metrics }

var _ prometheus.Collector = stateCollector{}

// Describe implements prometheus.Collector.
func (stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range mirroredDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for name, t := range c.m.windows() {
		gauge(windowMax, t.Max.Seconds(), name)
		gauge(windowSum, t.Sum.Seconds(), name)
		gauge(windowCount, float64(t.Count), name)
	}
	source := c.m.source.Load()
	if source == nil {
		return
	}
	state := (*source).State()
	gauge(viewDesc, float64(state.View))
	gauge(leaseDesc, state.Lease.Seconds())
	for _, status := range slices.Sorted(maps.Keys(state.Members)) {
		gauge(membersDesc, float64(state.Members[status]), status)
	}
	for _, name := range slices.Sorted(maps.Keys(state.ReplicaLag)) {
		gauge(lagDesc, float64(state.ReplicaLag[name]), name)
	}
	for _, p := range state.Pools {
		gauge(capacityDesc, float64(p.Capacity), p.Name)
		gauge(inFlightDesc, float64(p.InFlight), p.Name)
		gauge(waitingDesc, float64(p.Waiting), p.Name)
		gauge(batonDesc, oneIf(p.BatonHeld), p.Name)
		gauge(tokensDesc, float64(p.TokensRunning), p.Name, "running")
		gauge(tokensDesc, float64(p.TokensFree), p.Name, "free")
		gauge(tokensDesc, float64(p.TokensQuarantined), p.Name, "quarantined")
		for _, name := range slices.Sorted(maps.Keys(p.Upstreams)) {
			gauge(healthyDesc, oneIf(p.Upstreams[name]), p.Name, name)
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// windows returns the totals of each pool's window.
func (m *Metrics) windows() map[string]Window {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ts := make(map[string]Window, len(m.pools))
	for name, p := range m.pools {
		ts[name] = p.window.totals()
	}
	return ts
}
