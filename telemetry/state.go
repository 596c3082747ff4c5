package telemetry

import (
	"maps"
	"runtime"
	"slices"
	"time"
)

// Source returns the state of the gateway. It is called once per scrape, possibly by
// several goroutines, and should return at once.
type Source interface {
	State() State
}

// The directions of a rate: to clients, and from them.
const (
	Down = "down"
	Up   = "up"
)

// RateState is a pool's rate in one direction.
type RateState struct {
	// Limit of all gateways together, in bytes per second; 0: none.
	Limit int64
	// Share is how many bytes this gateway could have moved so far, and Moved how many it has.
	Share float64
	Moved uint64
}

// State of a gateway at one moment.
type State struct {
	// View is the number of the agreed view.
	View uint64
	// Members counts the gateways of the cluster by status, a short list of
	// words such as alive.
	Members map[string]int
	// Lease is how long this gateway may still admit without a renewal; 0: it
	// has no lease.
	Lease time.Duration
	// Leader: this gateway leads the agreement on views. Voter: it has a vote in it.
	Leader, Voter bool
	// Differs: this gateway's state differs from the state that the others have agreed on.
	Differs bool
	// Voters counts the gateways that vote. LossesTolerated is how many of them may be lost now
	// without ending agreement; negative: too many are lost already.
	Voters, LossesTolerated int
	// Peers are the other gateways, by name.
	Peers map[string]PeerState
	// Draining: the gateway drains.
	Draining bool
	// ClientConnections counts the open connections of clients.
	ClientConnections int
	// Reloaded is when the configuration was last read without an error. ReloadFailed: the last
	// attempt failed.
	Reloaded     time.Time
	ReloadFailed bool
	// Certificates is when each certificate ends, by its purpose, a short list of words.
	Certificates map[string]time.Time
	// DiskSize and DiskFree are of the disk that data_dir is on, in bytes; 0: not known.
	DiskSize, DiskFree uint64
	// ReplicaLag is, for each gateway that keeps copies of this one's tickets,
	// how many changes it has not acknowledged yet.
	ReplicaLag map[string]int
	Pools      []PoolState
}

// PeerState is the link to another gateway.
type PeerState struct {
	Up bool
	// RTT is the round trip; 0: not known.
	RTT time.Duration
}

// PoolState is the state of one pool as this gateway sees it.
type PoolState struct {
	Name string
	// Capacity is the agreed k.
	Capacity int
	// InFlight and Waiting count this gateway's requests.
	InFlight, Waiting int
	// Oldest is how long the oldest waiting request has waited; 0: none waits.
	Oldest time.Duration
	// QueueLimit is how many may wait.
	QueueLimit int
	// TicketsWaiting and TicketsHolding count the tickets of the API.
	TicketsWaiting, TicketsHolding int
	// Baton is the number of the baton that this gateway holds, 0: none. It grows with each
	// move, so if two gateways claim the baton, the gateway with the higher number has it.
	Baton uint64
	// TokensRunning are in the critical section here, TokensFree are free
	// here. TokensWithheld are withheld from all gateways, because a lost gateway may still use
	// them; only the pool's home counts them.
	TokensRunning, TokensFree, TokensWithheld int
	// Rates by direction, [Down] and [Up]; nil: the pool has none.
	Rates map[string]RateState
	// Configured is the k of this gateway's own configuration.
	Configured int
	// OldestHold is how long the slot held longest here has been held; 0: none is held.
	OldestHold time.Duration
	// Upstreams of the pool, by URL.
	Upstreams map[string]UpstreamState
	// Sharing tells of the clients in the order fair; nil: it is another order.
	Sharing *SharingState
}

// SharingState is who shares a pool's slots at this gateway.
type SharingState struct {
	// Clients that wait or hold slots.
	Clients int
	// MostSlots is the mean number of slots, of late, of the client that has had most.
	MostSlots float64
}

// UpstreamState is the state of an upstream as this gateway sees it.
type UpstreamState struct {
	Healthy  bool
	InFlight int
	// K is the upstream's own k, nil: it has none. SlotsInUse are this gateway's slots in use
	// for it.
	K          *int
	SlotsInUse int
	// Quiet is how long the upstream has given no answer while requests wait for an answer.
	Quiet time.Duration
	// Answered is when the upstream began its last answer; zero: it has given none.
	Answered time.Time
}

var (
	buildDesc      = desc("kgate_build_info", "Always 1; the labels say which program runs.", "version", "revision", "goversion")
	capacityDesc   = desc("kgate_pool_capacity", "Requests that may be in flight over all gateways together (k).", "pool")
	inFlightDesc   = desc("kgate_in_flight", "Requests of this gateway that hold a slot.", "pool")
	waitingDesc    = desc("kgate_waiting", "Requests of this gateway that wait for a slot.", "pool")
	oldestDesc     = desc("kgate_oldest_wait_seconds", "How long the oldest waiting request of this gateway has waited; 0: nobody waits.", "pool")
	limitDesc      = desc("kgate_queue_limit", "Requests that may wait at this gateway (queue.limit).", "pool")
	ticketsDesc    = desc("kgate_tickets", "Tickets of the API at this gateway, by whether they wait or hold a slot.", "pool", "state")
	batonDesc      = desc("kgate_baton_number", "Number of the baton while it is at this gateway, else 0. It grows with each move: if two gateways show one, the higher number is right.", "pool")
	slotTimeDesc   = desc("kgate_slot_seconds_total", "Seconds that slots were in use at this gateway, all slots added up. Its rate is the mean number of slots in use.", "pool")
	leaderDesc     = desc("kgate_leader", "1 if this gateway leads the agreement on views, else 0.")
	voterDesc      = desc("kgate_voter", "1 if this gateway has a vote in the agreement on views, else 0.")
	votersDesc     = desc("kgate_voters", "Gateways that have a vote, as this gateway sees it.")
	toleratedDesc  = desc("kgate_losses_tolerated", "Voters that may be lost now while the others still agree; below 0 they do not.")
	linkDesc       = desc("kgate_peer_link_up", "1 if the link to the other gateway is up, else 0.", "peer")
	rttDesc        = desc("kgate_peer_rtt_seconds", "Round trip to the other gateway.", "peer")
	drainingDesc   = desc("kgate_draining", "1 while this gateway is being taken out of service, else 0.")
	clientsDesc    = desc("kgate_client_connections", "Open connections of clients.")
	reloadDesc     = desc("kgate_config_last_reload_successful", "1 if the configuration had no errors when it was last read, else 0.")
	reloadedDesc   = desc("kgate_config_last_reload_success_timestamp_seconds", "When the configuration was last read without errors.")
	diskSizeDesc   = desc("kgate_data_dir_size_bytes", "Size of the disk that data_dir is on.")
	diskFreeDesc   = desc("kgate_data_dir_free_bytes", "What is free of the disk that data_dir is on.")
	expiryDesc     = desc("kgate_certificate_expiry_timestamp_seconds", "When a certificate of this gateway expires.", "use")
	rateDesc       = desc("kgate_rate_limit_bytes_per_second", "Bytes per second that all gateways together may move.", "pool", "direction")
	shareDesc      = desc("kgate_rate_share_bytes_total", "Bytes that this gateway's share of the rate has come to. Its rate is the mean share.", "pool", "direction")
	movedDesc      = desc("kgate_rate_moved_bytes_total", "Bytes that this gateway has moved of what the rate allows.", "pool", "direction")
	tokensDesc     = desc("kgate_tokens", "Tokens at this gateway, by state.", "pool", "state")
	differsDesc    = desc("kgate_state_differs", "1 if what this gateway has agreed on is not what the others have: it admits nothing, and needs people. Else 0.")
	viewDesc       = desc("kgate_view_epoch", "Number of the agreed view that this gateway follows.")
	leaseDesc      = desc("kgate_lease_remaining_seconds", "How long this gateway may still admit without a renewal of its lease.")
	membersDesc    = desc("kgate_members", "Gateways in the cluster, by status, as this gateway sees it.", "status")
	lagDesc        = desc("kgate_replica_lag", "Changes of tickets that the successor has not acknowledged yet.", "successor")
	configuredDesc = desc("kgate_pool_configured_capacity", "k in this gateway's own configuration. What the gateways have agreed on counts: kgate_pool_capacity.", "pool")
	holdDesc       = desc("kgate_oldest_hold_seconds", "How long the slot has been held that has been held longest at this gateway; 0: none is.", "pool")
	atUpstreamDesc = desc("kgate_upstream_in_flight", "Requests of this gateway that are in flight at the upstream.", "pool", "upstream")
	ownKDesc       = desc("kgate_upstream_capacity", "Requests that the upstream may get at once from all gateways together, where it has a k of its own.", "pool", "upstream")
	slotsAtDesc    = desc("kgate_upstream_slots_in_use", "Slots in use at this gateway that are for the upstream, those of tickets included, where it has a k of its own.", "pool", "upstream")
	quietDesc      = desc("kgate_upstream_quiet_seconds", "How long the upstream has begun no answer while requests of this gateway wait for one; 0: none waits.", "pool", "upstream")
	answeredDesc   = desc("kgate_upstream_answered_timestamp_seconds", "When the upstream began its last answer to a request of this gateway. Not there before the first.", "pool", "upstream")
	sharingDesc    = desc("kgate_clients", "Clients that wait or hold slots at this gateway, in the order fair.", "pool")
	mostDesc       = desc("kgate_client_most_slots", "Mean number of slots that the client with most has had at this gateway in about the last half minute, in the order fair.", "pool")
	healthyDesc    = desc("kgate_upstream_healthy", "1 if this gateway considers the upstream healthy, else 0.", "pool", "upstream")
	windowMax      = desc("kgate_window_longest_wait_seconds", "Longest wait of the requests admitted in the last 60 seconds.", "pool")
	windowSum      = desc("kgate_window_wait_seconds", "Sum of the waits of the requests admitted in the last 60 seconds.", "pool")
	windowCount    = desc("kgate_window_admissions", "Requests admitted in the last 60 seconds.", "pool")
	droppedDesc    = desc("kgate_log_lines_dropped_total", "Log lines that were dropped because nobody read the log.", "log")
)

// Desc describes a metric that mirrors state.
type Desc struct {
	Name, Help string
	Labels     []string
}

// Mirrored are the metrics of [Metrics.Mirror].
var Mirrored []*Desc

func desc(name, help string, labels ...string) *Desc {
	d := &Desc{name, help, labels}
	Mirrored = append(Mirrored, d)
	return d
}

// Send takes the value of a metric that mirrors state. since is when a counter began to count; for
// gauges it is zero.
type Send func(d *Desc, value float64, since time.Time, labels ...string)

func (send Send) gauge(d *Desc, value float64, labels ...string) {
	send(d, value, time.Time{}, labels...)
}

// Mirror sends all metrics that mirror state. It is called at each scrape.
func (m *Metrics) Mirror(send Send) {
	gauge := send.gauge
	gauge(buildDesc, 1, m.build.Version, m.build.Revision, runtime.Version())
	for name, p := range m.all() {
		t := p.window.totals()
		gauge(windowMax, t.Max.Seconds(), name)
		gauge(windowSum, t.Sum.Seconds(), name)
		gauge(windowCount, float64(t.Count), name)
		send(slotTimeDesc, p.slots.total(m.now()).Seconds(), p.slots.began, name)
	}
	for log, lines := range m.logDrops() {
		send(droppedDesc, float64(lines), m.started, log)
	}
	source := m.source.Load()
	if source == nil {
		return
	}
	state := (*source).State()
	gauge(viewDesc, float64(state.View))
	gauge(differsDesc, oneIf(state.Differs))
	gauge(leaseDesc, state.Lease.Seconds())
	gauge(leaderDesc, oneIf(state.Leader))
	gauge(voterDesc, oneIf(state.Voter))
	gauge(votersDesc, float64(state.Voters))
	gauge(toleratedDesc, float64(state.LossesTolerated))
	gauge(drainingDesc, oneIf(state.Draining))
	gauge(clientsDesc, float64(state.ClientConnections))
	gauge(reloadDesc, oneIf(!state.ReloadFailed))
	gauge(reloadedDesc, unixSeconds(state.Reloaded))
	if state.DiskSize > 0 {
		gauge(diskSizeDesc, float64(state.DiskSize))
		gauge(diskFreeDesc, float64(state.DiskFree))
	}
	for _, use := range slices.Sorted(maps.Keys(state.Certificates)) {
		gauge(expiryDesc, unixSeconds(state.Certificates[use]), use)
	}
	for _, name := range slices.Sorted(maps.Keys(state.Peers)) {
		peer := state.Peers[name]
		gauge(linkDesc, oneIf(peer.Up), name)
		if peer.RTT > 0 {
			gauge(rttDesc, peer.RTT.Seconds(), name)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(state.Members)) {
		gauge(membersDesc, float64(state.Members[status]), status)
	}
	for _, name := range slices.Sorted(maps.Keys(state.ReplicaLag)) {
		gauge(lagDesc, float64(state.ReplicaLag[name]), name)
	}
	for i := range state.Pools {
		m.mirrorPool(send, &state.Pools[i])
	}
}

// mirrorPool sends the metrics of one pool's state.
func (m *Metrics) mirrorPool(send Send, p *PoolState) {
	gauge := func(d *Desc, v float64, labels ...string) { send.gauge(d, v, append([]string{p.Name}, labels...)...) }
	gauge(capacityDesc, float64(p.Capacity))
	gauge(configuredDesc, float64(p.Configured))
	gauge(inFlightDesc, float64(p.InFlight))
	gauge(holdDesc, p.OldestHold.Seconds())
	gauge(waitingDesc, float64(p.Waiting))
	gauge(oldestDesc, p.Oldest.Seconds())
	gauge(limitDesc, float64(p.QueueLimit))
	gauge(ticketsDesc, float64(p.TicketsWaiting), "waiting")
	gauge(ticketsDesc, float64(p.TicketsHolding), "holding")
	gauge(batonDesc, float64(p.Baton))
	gauge(tokensDesc, float64(p.TokensRunning), "running")
	gauge(tokensDesc, float64(p.TokensFree), "free")
	gauge(tokensDesc, float64(p.TokensWithheld), "withheld")
	counter := func(d *Desc, v float64, direction string) { send(d, v, m.started, p.Name, direction) }
	for _, direction := range slices.Sorted(maps.Keys(p.Rates)) {
		if r := p.Rates[direction]; r.Limit > 0 {
			gauge(rateDesc, float64(r.Limit), direction)
			counter(shareDesc, r.Share, direction)
			counter(movedDesc, float64(r.Moved), direction)
		}
	}
	if p.Sharing != nil {
		gauge(sharingDesc, float64(p.Sharing.Clients))
		gauge(mostDesc, p.Sharing.MostSlots)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Upstreams)) {
		u := p.Upstreams[name]
		gauge(healthyDesc, oneIf(u.Healthy), name)
		gauge(atUpstreamDesc, float64(u.InFlight), name)
		gauge(quietDesc, u.Quiet.Seconds(), name)
		if !u.Answered.IsZero() {
			gauge(answeredDesc, unixSeconds(u.Answered), name)
		}
		if u.K != nil {
			gauge(ownKDesc, float64(*u.K), name)
			gauge(slotsAtDesc, float64(u.SlotsInUse), name)
		}
	}
}

// logDrops returns how many lines each log has dropped.
func (m *Metrics) logDrops() map[string]uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	drops := map[string]uint64{LogProcess: 0, LogAccess: 0}
	for log, writers := range m.logs {
		for _, q := range writers {
			drops[log] += q.lost()
		}
	}
	return drops
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// all returns the pools by name.
func (m *Metrics) all() map[string]*Pool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.pools)
}
