package proxy

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/upstream"
)

// balancer chooses the upstream of each request of a pool, or of a route without a
// pool. That of a pool outlives a reload, so that it knows of all requests that are
// in flight.
type balancer struct {
	mu       sync.Mutex
	pool     string // empty: of a route without a pool
	policy   Health
	backends []*backend
	next     int // where the next search begins, so that ties spread evenly
	logger   *slog.Logger

	bar func(pool string, upstreams []string) // see Config.Bar; nil: nobody wants to know
	// telling is held while bar is called, which was told these last; it is locked before mu.
	telling sync.Mutex
	told    []string

	// updating is held while backends are replaced, which may take seconds. It guards
	// the fields below, and is locked before mu.
	updating sync.Mutex
	wanted   Pool
	standing func() uint64
	log      *slog.Logger
	services services
	agreed   []string // upstreams that have a k of their own; none: those of wanted count
	follow   func()   // ends followServices; nil: it does not run
}

// pick returns the upstream with the fewest requests in flight for its weight that has
// not been tried, and counts one more for it, in one step, so that two requests
// never choose by the same count. It takes a healthy one of the lowest rank: backups
// have higher ranks than all others.
//
// If there is none, it takes an upstream that is unhealthy because requests to it have failed: the
// first request finds out that it is back. If the upstreams fail their checks, it returns
// nil.
func (b *balancer) pick(tried []*backend) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 { // a reload has taken them away, or their service is not known
		return nil
	}
	u := b.bestLocked(tried, true)
	if u == nil && !b.policy.checks() {
		u = b.bestLocked(tried, false)
	}
	if u == nil {
		return nil
	}
	b.next = (b.next + 1) % len(b.backends)
	if u.health.bad {
		u.health.again = time.Now().Add(b.policy.Interval) // one request at a time tries it
	}
	b.countLocked(u)
	return u
}

// countLocked counts one more request for u.
func (b *balancer) countLocked(u *backend) {
	u.inFlight++
	if u.unanswered++; u.unanswered > 1 {
		return
	}
	now := time.Now()
	if gap := now.Sub(u.gaveUp); gap > quietGap {
		u.quiet = now
	} else {
		u.quiet = u.quiet.Add(gap)
	}
}

func (b *balancer) bestLocked(tried []*backend, healthy bool) *backend {
	var best *backend
	least := 0.0
	for i := range b.backends {
		u := b.backends[(b.next+i)%len(b.backends)]
		if slices.Contains(tried, u) || healthy && !u.health.eligible(b.policy) || best != nil && u.rank > best.rank {
			continue
		}
		if load := float64(u.inFlight+1) / u.share(b.policy.SlowStart); best == nil || u.rank < best.rank || load < least {
			best, least = u, load
		}
	}
	return best
}

// settled ends the wait for the header of an answer from u. It is called once after each pick.
func (b *balancer) settled(u *backend, how settling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u.unanswered--
	switch now := time.Now(); how {
	case settlingAnswered:
		u.quiet, u.gaveUp, u.answered = now, time.Time{}, now
	case settlingGaveUp:
		u.gaveUp = now
	case settlingLost:
		u.gaveUp = time.Time{}
	}
}

// settling is how the wait for the header of an answer ends.
type settling int

const (
	settlingAnswered settling = iota // it has come
	settlingGaveUp                   // client or gateway waits no longer, or the upstream has ended the connection
	settlingLost                     // this gateway has lost all its slots: that says nothing of the upstream
)

// quietGap is how long nobody may wait for an answer of an upstream that has given none, and what
// it was quiet for before still counts, without the gap: all that waited may have timed out at once.
const quietGap = 5 * time.Second

// done ends a request to u, and notes what the request has shown of u.
func (b *balancer) done(u *backend, v verdict, cause error) {
	b.note(u, v, cause)
	if v == verdictFailed {
		b.tell()
	}
}

func (b *balancer) note(u *backend, v verdict, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u.inFlight--
	if u.health.doubtful(v, b.policy) && (b.policy.checks() || u.isAgreed) {
		u.suspect()
	}
	if u.health.request(v, b.policy) {
		b.changedLocked(u, cause)
	} else if v == verdictFailed {
		u.why = cause
	}
	if u.isAgreed && v == verdictFailed && (u.health.bad || upstream.IsUnreachable(cause)) {
		b.missedLocked(u, cause)
	}
}

// reached notes that a TCP connection to u could be made.
func (b *balancer) reached(u *backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.health.request(verdictGood, b.policy) {
		b.changedLocked(u, nil)
	}
}

// checked notes the result of a health check, and reports whether u is coming back.
func (b *balancer) checked(u *backend, err error) (returns bool) {
	returns = b.noteCheck(u, err)
	b.tell()
	return returns
}

func (b *balancer) noteCheck(u *backend, err error) (returns bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.foundLocked(u)
	}
	if u.health.check(err == nil, b.policy) {
		b.changedLocked(u, err)
	} else if err != nil {
		u.why = err
	}
	return err == nil && u.health.bad
}

// changedLocked is called when u has become unhealthy, or healthy again.
func (b *balancer) changedLocked(u *backend, cause error) {
	u.changed, u.why = time.Now(), cause
	if !u.health.bad {
		u.since = time.Now()
	}
	if !u.away { // else it has been said
		b.logHealth(u, !u.health.bad, cause)
	}
}

// isDown reports whether there is no upstream, or every one fails its checks. An agreed one
// is down, too, when it could not be reached.
func (b *balancer) isDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(b.backends, b.reachableLocked)
}

// downRefusal is for requests while isDown. They get no slot, or give it back: none
// is held for an upstream that may not come back.
func (b *balancer) downRefusal() *admission.Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &admission.Refusal{Reason: admission.UpstreamDown, RetryAfter: b.policy.Interval}
}

// status returns what is known of the upstreams.
func (b *balancer) status() []UpstreamStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]UpstreamStatus, len(b.backends))
	for i, u := range b.backends {
		all[i] = UpstreamStatus{
			Pool: b.pool, URL: u.configured, Healthy: !u.health.bad && !u.away, Since: u.changed, InFlight: u.inFlight, Unanswered: u.unanswered, Answered: u.answered,
		}
		if !all[i].Healthy {
			all[i].Why = u.why
		}
		if u.unanswered > 0 {
			all[i].Quiet = time.Since(u.quiet)
		}
	}
	return all
}
