package telemetry

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// Config of Metrics. The zero value serves.
type Config struct {
	// Version and Revision of the program, for kgate_build_info.
	Version, Revision string
	// Now is the clock of the sliding window. Default: time.Now. Only its
	// monotonic part counts.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	c.Version = cmp.Or(c.Version, "unknown")
	c.Revision = cmp.Or(c.Revision, "unknown")
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Metrics counts what happens in one gateway. Its methods may be called by any
// goroutine.
type Metrics struct {
	build   Config
	now     func() time.Time
	started time.Time
	source  atomic.Pointer[Source]
	vecs    vectors

	refused *causes

	mu    sync.RWMutex // guards the rest
	pools map[string]*Pool
	other *Pool // for pools that were not added; no metric shows it
	logs  map[string][]*Queued
}

// New returns Metrics that count in metrics of reg. With a nil reg they only count the last minutes,
// for the status.
func New(reg Registry, cfg Config) *Metrics {
	if reg == nil {
		reg = nothing{}
	}
	cfg = cfg.withDefaults()
	m := &Metrics{
		build:   cfg,
		now:     cfg.Now,
		started: cfg.Now(),
		vecs:    newVectors(reg),
		pools:   map[string]*Pool{},
		logs:    map[string][]*Queued{},
	}
	unseen := newVectors(nothing{})
	m.other = newPool(m, &unseen, other)
	m.refused = newCauses(m.vecs.refused)
	for _, what := range []string{DiskRaft, DiskTickets} {
		m.vecs.diskWrite(what)
	}
	for _, result := range []string{"taken", "lost"} {
		m.vecs.traceSpans(result)
	}
	return m
}

// SetSource sets the source of the metrics of state. Before the call there are none.
func (m *Metrics) SetSource(s Source) { m.source.Store(&s) }

// The logs of a gateway.
const (
	LogProcess = "process"
	LogAccess  = "access"
)

// CountDropped counts the lines that writers drop as dropped lines of log, LogProcess or LogAccess.
func (m *Metrics) CountDropped(log string, writers ...*Queued) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[log] = append(m.logs[log], writers...)
}

// AddPool returns the handle of the pool of that name, and makes it if there is none. The name must
// come from the configuration, never from the network.
func (m *Metrics) AddPool(name string) *Pool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.pools[name]
	if !ok {
		p = newPool(m, &m.vecs, name)
		m.pools[name] = p
	}
	return p
}

// Pool returns the handle of a pool. If the pool was not added, no metric shows the handle's counts.
func (m *Metrics) Pool(name string) *Pool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p, ok := m.pools[name]; ok {
		return p
	}
	return m.other
}

// BatchSize counts one write to a peer that carried n messages.
func (m *Metrics) BatchSize(n int) { m.vecs.batchSize.Observe(float64(n), "") }

// Hops counts one request for a place in line that n gateways forwarded before
// it reached the last in line.
func (m *Metrics) Hops(n uint32) { m.vecs.hops.Observe(float64(n), "") }

// LeaseLost counts that this gateway has lost its lease.
func (m *Metrics) LeaseLost() { m.vecs.leaseLost.Inc() }

// LeaderChanged counts that another gateway leads now.
func (m *Metrics) LeaderChanged() { m.vecs.leaderChanges.Inc() }

// TraceSchema is the schema URL of the OpenTelemetry semantic conventions whose names the spans use.
const TraceSchema = "https://opentelemetry.io/schemas/1.26.0"

// The kinds of DiskWrite.
const (
	DiskRaft    = "raft"
	DiskTickets = "tickets"
)

// DiskWrite notes how long a write of DiskRaft or DiskTickets took, sync included.
func (m *Metrics) DiskWrite(what string, took time.Duration) {
	m.vecs.diskWrite(what).Observe(took.Seconds(), "")
}

// Committed notes how long the leader waited for agreement on a change.
func (m *Metrics) Committed(took time.Duration) { m.vecs.commit.Observe(took.Seconds(), "") }

// RecoveryTook notes how long the start of an epoch took.
func (m *Metrics) RecoveryTook(d time.Duration) { m.vecs.recoveryTime.Observe(d.Seconds(), "") }

// AddRefusalCause makes the counter of a cause before Refused counts the first.
func (m *Metrics) AddRefusalCause(cause string) { m.refused.add(cause) }

// Refused counts a refusal at the peer port. cause is a short constant such as bad_frame.
func (m *Metrics) Refused(cause string) { m.refused.inc(cause) }

// SpansSent counts n spans; taken: the collector has accepted them. A nil m counts nothing.
func (m *Metrics) SpansSent(n int, taken bool) {
	switch {
	case m == nil:
	case taken:
		m.vecs.traceSpans("taken").Add(float64(n))
	default:
		m.vecs.traceSpans("lost").Add(float64(n))
	}
}
