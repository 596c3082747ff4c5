package telemetry

import (
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// recoveryReasons are the reasons of Recovered.
var recoveryReasons = []string{"loss", "return", "k", "rate", "leave", "spread", "several", "repair"}

// other is the label value for all values that are on no list.
const other = "other"

const (
	directionSent     = "sent"
	directionReceived = "received"
)

// Pool counts for one pool.
type Pool struct {
	name                           string
	outcomes                       map[admission.Outcome]Counter
	outcomeOther                   Counter
	waits                          map[admission.Outcome]Observer
	admitted                       Observer // of waits
	hold                           Observer
	upstream                       Observer
	batonMoves                     Counter
	inversions                     Counter
	auditFailures                  Counter
	retries                        Counter
	connsNew, connsReused          Counter
	received, sent                 Counter // bytes
	codes                          *codes
	admissions                     Counter
	recoveries                     func(reason string) Counter
	slots                          slotTime
	messagesSent, messagesReceived []Counter // by kmutex.Kind; 0 is other
	window                         *window
	last                           tally
	newUpstream                    func(url string) *Upstream

	mu        sync.Mutex // guards upstreams
	upstreams map[string]*Upstream
}

func newPool(m *Metrics, v *vectors, name string) *Pool {
	p := &Pool{
		name:             name,
		upstreams:        map[string]*Upstream{},
		newUpstream:      func(url string) *Upstream { return newUpstream(m, v.upstreamRequests, name, url) },
		outcomes:         map[admission.Outcome]Counter{},
		outcomeOther:     v.requests(name, other),
		waits:            map[admission.Outcome]Observer{},
		hold:             v.hold(name),
		upstream:         v.upstream(name),
		batonMoves:       v.batonMoves(name),
		inversions:       v.inversions(name),
		auditFailures:    v.auditFailures(name),
		recoveries:       func(reason string) Counter { return v.recoveries(name, reason) },
		retries:          v.upstreamRetries(name),
		connsNew:         v.upstreamConns(name, "new"),
		connsReused:      v.upstreamConns(name, "reused"),
		received:         v.requestBytes(name),
		sent:             v.responseBytes(name),
		admissions:       v.admissions(name),
		codes:            newCodes(func(code string) Counter { return v.responses(name, code) }),
		messagesSent:     []Counter{v.messages(name, other, directionSent)},
		messagesReceived: []Counter{v.messages(name, other, directionReceived)},
		window:           newWindow(m.now, m.started),
	}
	p.slots.began = m.now()
	p.slots.since = p.slots.began
	for _, o := range admission.WaitOutcomes() {
		p.waits[o] = v.wait(name, string(o))
	}
	p.admitted = p.waits[admission.OutcomeAdmitted]
	for _, reason := range recoveryReasons {
		p.recoveries(reason)
	}
	for _, o := range admission.Outcomes() {
		p.outcomes[o] = v.requests(name, string(o))
	}
	for k := kmutex.Kind(1); k.Valid(); k++ {
		p.messagesSent = append(p.messagesSent, v.messages(name, k.String(), directionSent))
		p.messagesReceived = append(p.messagesReceived, v.messages(name, k.String(), directionReceived))
	}
	return p
}

// Outcome counts one ended request.
func (p *Pool) Outcome(o admission.Outcome) {
	c, ok := p.outcomes[o]
	if !ok {
		c = p.outcomeOther
	}
	c.Inc()
}

// Admitted counts a request that was admitted at that time, after a wait of d. traceID is its trace if
// that is recorded, for the exemplar; else "".
func (p *Pool) Admitted(at time.Time, d time.Duration, traceID string) {
	p.admitted.Observe(d.Seconds(), traceID)
	p.window.observe(at.Sub(p.window.started), d)
}

// Refused counts the wait of a request that was not admitted. Outcomes without a wait are not counted.
func (p *Pool) Refused(o admission.Outcome, d time.Duration) {
	if h, ok := p.waits[o]; ok {
		h.Observe(d.Seconds(), "")
	}
}

// Waiting notes how long the oldest waiting request has waited by now, for [Pool.Past].
// Call it about once a second.
func (p *Pool) Waiting(oldest time.Duration) { p.window.waiting(oldest) }

// Answered counts one answer to a client: its status, 0 for a TCP connection, and the bytes of both
// bodies.
func (p *Pool) Answered(status int, received, sent int64) {
	if status != 0 {
		p.codes.inc(status)
	}
	p.received.Add(float64(received))
	p.sent.Add(float64(sent))
}

// Retried counts n attempts at another upstream.
func (p *Pool) Retried(n int) {
	if n > 0 {
		p.retries.Add(float64(n))
	}
}

// Connected counts the upstream connections that a request was written to: fresh ones made for it,
// and reused ones.
func (p *Pool) Connected(fresh, reused int) {
	p.connsNew.Add(float64(fresh))
	p.connsReused.Add(float64(reused))
}

// Slots notes the number of slots in use from now on. A rise is an admission.
func (p *Pool) Slots(now time.Time, inUse int) {
	if p.slots.set(now, inUse) {
		p.admissions.Inc()
	}
}

// Overtaken counts one admission of a request after a request that had arrived here later.
func (p *Pool) Overtaken() { p.inversions.Inc() }

// Window returns the access times of the last 60 seconds.
func (p *Pool) Window() Window { return p.window.totals() }

// Past returns the results of Window at n times, step apart, ending at last. Windows older than 15
// minutes are empty.
func (p *Pool) Past(last time.Time, step time.Duration, n int) []Window {
	return p.window.past(last, step, n)
}

// Hold counts one slot that was given back after d.
func (p *Pool) Hold(d time.Duration) { p.hold.Observe(d.Seconds(), "") }

// Upstream counts one answer of an upstream, whose header came d after the
// request went out.
func (p *Pool) Upstream(d time.Duration) { p.upstream.Observe(d.Seconds(), "") }

// AddUpstream returns the handle of an upstream of the pool, and makes it if there is none. The URL
// must come from the configuration.
func (p *Pool) AddUpstream(url string) *Upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	u, ok := p.upstreams[url]
	if !ok {
		u = p.newUpstream(url)
		p.upstreams[url] = u
	}
	return u
}

// Recent returns the counts of the requests that ended in the last 60 seconds.
func (p *Pool) Recent() Recent { return p.last.sum(p.window.now().Sub(p.window.started)) }

// Count adds the counts of an ended request, for [Pool.Recent].
func (p *Pool) Count(r Recent) { p.last.count(p.window.now().Sub(p.window.started), r) }

// Sent counts one message of the pool to a peer.
func (p *Pool) Sent(k kmutex.Kind) { p.messagesSent[kindIndex(k)].Inc() }

// Received counts one message of the pool from a peer.
func (p *Pool) Received(k kmutex.Kind) { p.messagesReceived[kindIndex(k)].Inc() }

func kindIndex(k kmutex.Kind) int {
	if !k.Valid() {
		return 0
	}
	return int(k)
}

// BatonMoved counts one move of the baton from this gateway to another.
func (p *Pool) BatonMoved() { p.batonMoves.Inc() }

// Recovered counts an epoch that has begun here. reason is one of recoveryReasons.
func (p *Pool) Recovered(reason string) { p.recoveries(reason).Inc() }

// AuditFailed counts an audit that found tokens lost or doubled.
func (p *Pool) AuditFailed() { p.auditFailures.Inc() }
