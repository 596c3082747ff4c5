package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kgate/kgate/kmutex"
)

// Outcome says how a request ended. Every request has exactly one.
type Outcome string

// The outcomes. A request that was admitted and then failed upstream is an
// OutcomeUpstreamError.
const (
	OutcomeAdmitted      Outcome = "admitted"
	OutcomeQueueFull     Outcome = "queue_full"
	OutcomeTimeout       Outcome = "timeout"
	OutcomeClientGone    Outcome = "client_gone"
	OutcomeDraining      Outcome = "draining"
	OutcomeIsolated      Outcome = "isolated"
	OutcomeClientLimit   Outcome = "client_limit"
	OutcomeCancelled     Outcome = "cancelled"
	OutcomeUpstreamDown  Outcome = "upstream_down"
	OutcomeUpstreamError Outcome = "upstream_error"
)

var outcomes = []Outcome{
	OutcomeAdmitted, OutcomeQueueFull, OutcomeTimeout, OutcomeClientGone,
	OutcomeDraining, OutcomeIsolated, OutcomeClientLimit, OutcomeCancelled, OutcomeUpstreamDown, OutcomeUpstreamError,
}

// UpstreamCause says why an upstream did not answer.
type UpstreamCause string

// The causes.
const (
	UpstreamDial    UpstreamCause = "dial"    // no connection
	UpstreamTimeout UpstreamCause = "timeout" // no answer in time
	UpstreamBroken  UpstreamCause = "broken"  // the connection broke
)

var upstreamCauses = []UpstreamCause{UpstreamDial, UpstreamTimeout, UpstreamBroken}

// other stands for every label value that is on no list.
const other = "other"

const (
	directionSent     = "sent"
	directionReceived = "received"
)

// Pool counts for one pool. A nil Pool counts nothing.
type Pool struct {
	name           string
	outcomes       map[Outcome]prometheus.Counter
	outcomeOther   prometheus.Counter
	upstreamErrors map[UpstreamCause]prometheus.Counter
	upstreamOther  prometheus.Counter
	access         prometheus.Observer
	hold           prometheus.Observer
	upstream       prometheus.Observer
	batonMoves     prometheus.Counter
	inversions     prometheus.Counter
	auditFailures  prometheus.Counter
	recoveries     *prometheus.CounterVec // of this pool, by reason
	sent, received []prometheus.Counter   // by kmutex.Kind; 0 is other
	window         *window
}

func newPool(m *Metrics, name string) *Pool {
	v := m.vecs
	p := &Pool{
		name:           name,
		outcomes:       map[Outcome]prometheus.Counter{},
		outcomeOther:   v.requests.WithLabelValues(name, other),
		upstreamErrors: map[UpstreamCause]prometheus.Counter{},
		upstreamOther:  v.upstreamErrors.WithLabelValues(name, other),
		access:         v.access.WithLabelValues(name),
		hold:           v.hold.WithLabelValues(name),
		upstream:       v.upstream.WithLabelValues(name),
		batonMoves:     v.batonMoves.WithLabelValues(name),
		inversions:     v.inversions.WithLabelValues(name),
		auditFailures:  v.auditFailures.WithLabelValues(name),
		recoveries:     v.recoveries.MustCurryWith(prometheus.Labels{"pool": name}),
		sent:           []prometheus.Counter{v.messages.WithLabelValues(name, other, directionSent)},
		received:       []prometheus.Counter{v.messages.WithLabelValues(name, other, directionReceived)},
		window:         newWindow(m.now, m.started),
	}
	for _, o := range outcomes {
		p.outcomes[o] = v.requests.WithLabelValues(name, string(o))
	}
	for _, c := range upstreamCauses {
		p.upstreamErrors[c] = v.upstreamErrors.WithLabelValues(name, string(c))
	}
	for k := kmutex.Kind(1); k.Valid(); k++ {
		p.sent = append(p.sent, v.messages.WithLabelValues(name, k.String(), directionSent))
		p.received = append(p.received, v.messages.WithLabelValues(name, k.String(), directionReceived))
	}
	return p
}

// Outcome counts one request that has ended.
func (p *Pool) Outcome(o Outcome) {
	if p == nil {
		return
	}
	c, ok := p.outcomes[o]
	if !ok {
		c = p.outcomeOther
	}
	c.Inc()
}

// Access counts one admission, d after the request's arrival. A request whose
// trace is recorded brings its ID, as an example of such a wait; others bring "".
func (p *Pool) Access(d time.Duration, traceID string) {
	if p == nil {
		return
	}
	if traceID == "" {
		p.access.Observe(d.Seconds())
	} else {
		p.access.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": traceID})
	}
	p.window.observe(d)
}

// Overtaken counts one admission after that of a request which had arrived here
// later.
func (p *Pool) Overtaken() {
	if p != nil {
		p.inversions.Inc()
	}
}

// Window returns the access times of the last 60 seconds.
func (p *Pool) Window() Window {
	if p == nil {
		return Window{}
	}
	return p.window.totals()
}

// Past returns what Window would have returned at n times, step apart, the last
// of them the given one; empty where that is more than 15 minutes ago.
func (p *Pool) Past(last time.Time, step time.Duration, n int) []Window {
	if p == nil {
		return make([]Window, n)
	}
	return p.window.past(last, step, n)
}

// Hold counts one slot that was given back, d after it was got.
func (p *Pool) Hold(d time.Duration) {
	if p != nil {
		p.hold.Observe(d.Seconds())
	}
}

// Upstream counts one answer of an upstream, whose header came d after the
// request went out.
func (p *Pool) Upstream(d time.Duration) {
	if p != nil {
		p.upstream.Observe(d.Seconds())
	}
}

// UpstreamError counts one request that its upstream did not answer.
func (p *Pool) UpstreamError(cause UpstreamCause) {
	if p == nil {
		return
	}
	c, ok := p.upstreamErrors[cause]
	if !ok {
		c = p.upstreamOther
	}
	c.Inc()
}

// MessageSent counts one message of the pool to a peer.
func (p *Pool) MessageSent(k kmutex.Kind) {
	if p != nil {
		p.sent[kindIndex(k)].Inc()
	}
}

// MessageReceived counts one message of the pool from a peer.
func (p *Pool) MessageReceived(k kmutex.Kind) {
	if p != nil {
		p.received[kindIndex(k)].Inc()
	}
}

func kindIndex(k kmutex.Kind) int {
	if !k.Valid() {
		return 0
	}
	return int(k)
}

// BatonMoved counts one move of the baton from this gateway to another.
func (p *Pool) BatonMoved() {
	if p != nil {
		p.batonMoves.Inc()
	}
}

// Recovered counts an epoch that has begun here. reason is one of a short list of
// words.
func (p *Pool) Recovered(reason string) {
	if p != nil {
		p.recoveries.WithLabelValues(reason).Inc()
	}
}

// AuditFailed counts an audit that found tokens lost or doubled.
func (p *Pool) AuditFailed() {
	if p != nil {
		p.auditFailures.Inc()
	}
}
