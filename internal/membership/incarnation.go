package membership

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
)

// Standing says as whom, and until when, this gateway may have requests in
// flight.
type Standing struct {
	Node kmutex.Node
	// Until carries the monotonic clock; the margin for what has to be broken
	// off is already taken off. Zero: no lease.
	Until time.Time
}

// Valid reports that requests may be in flight at the given time.
func (s Standing) Valid(now time.Time) bool { return now.Before(s.Until) }

// incarnation is the succession of this gateway's incarnations. What the newest one
// is comes from views and from answers to renewals; only standing is read
// without the lock.
type incarnation struct {
	start    time.Time // instants are counted from here
	now      func() time.Time
	leased   time.Time // the lease counts from here, on the clock of now
	first    string    // boot of the process
	standing atomic.Pointer[Standing]

	mu      sync.Mutex
	boot    string
	rejoins int
	node    kmutex.Node   // 0 until the view has it
	voided  kmutex.Node   // the incarnation before, which has nothing in flight
	holder  *lease.Holder // nil until the view has it
	void    bool          // nothing can come of this incarnation any more
}

// newIncarnation begins with a process; now is bootNow, but in tests.
func newIncarnation(boot string, now func() time.Time) *incarnation {
	t := &incarnation{start: time.Now(), now: now, leased: now(), first: boot, boot: boot}
	t.standing.Store(&Standing{})
	return t
}

// clock tells the time to the leader's rules and to who grants leases. While the
// machine sleeps it may stop: then they wait longer.
func (t *incarnation) clock() time.Duration { return time.Since(t.start) }

// leaseClock tells the time to this gateway's own lease. It goes on while the machine
// sleeps: the next look at the lease then finds it over. Standing.Until is on the
// clock of the timers all the same, because it is read for each admission.
func (t *incarnation) leaseClock() time.Duration { return t.now().Sub(t.leased) }

// at returns what the clock showed at an instant.
func (t *incarnation) at(instant time.Time) time.Duration { return instant.Sub(t.start) }

// current returns who this gateway is now, and whom it has been before
// without anything left of it.
func (t *incarnation) current() (boot string, voided kmutex.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.boot, t.voided
}

// in returns the node that a view has of this incarnation, if it has one.
func (t *incarnation) in(v *View, name string) (kmutex.Node, bool) {
	boot, _ := t.current()
	m, ok := v.Named(name)
	if !ok || m.Boot != boot {
		return 0, false
	}
	return m.Node, true
}

// follow takes in a view. It reports whether the standing began or ended.
func (t *incarnation) follow(v *View, name string, terms lease.Terms) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.void {
		return false
	}
	m, in := v.Named(name)
	in = in && m.Boot == t.boot
	switch {
	case in && t.holder == nil && terms.Lease > 0:
		t.node, t.holder = m.Node, lease.NewHolder(terms, m.Node, t.leaseClock())
		return false
	case !in && (t.node != 0 || v.lostBoot(name, t.boot)):
		t.end()
		return true
	default:
		return t.expire()
	}
}

// expire notes that the lease has lapsed. The caller holds mu.
func (t *incarnation) expire() bool {
	if t.void || t.holder == nil || !t.holder.Over(t.leaseClock()) {
		return false
	}
	t.end()
	return true
}

// end voids the incarnation. The caller holds mu.
func (t *incarnation) end() {
	t.void = true
	t.standing.Store(&Standing{})
}

// rejoin begins the next incarnation if the present one is void.
func (t *incarnation) rejoin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if !t.void {
		return false
	}
	t.rejoins++
	t.boot = fmt.Sprintf("%s.%d", t.first, t.rejoins)
	if t.node != 0 {
		t.voided = t.node
	}
	t.node, t.holder, t.void = 0, nil, false
	return true
}

// renewal returns the one that is due, and how long until the next thing
// happens: a renewal, or the end of the lease.
func (t *incarnation) renewal() (r lease.Renewal, due bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.void || t.holder == nil {
		return lease.Renewal{}, false, time.Hour
	}
	now := t.leaseClock()
	if due = now >= t.holder.Due(); due {
		r = t.holder.Send(now)
		// All gateways renew at the same moments of the wall clock, so that one round of the
		// leader's is for all.
		interval := t.holder.Due() - now
		t.holder.DueBy(now + interval - time.Duration(time.Now().UnixNano())%interval)
	}
	wait = t.holder.Due() - now
	if until, held := t.holder.Until(); held {
		wait = min(wait, until-now)
	}
	return r, due, max(wait, 0)
}

// answered takes in what became of a renewal. It reports whether the standing
// began or ended.
func (t *incarnation) answered(r lease.Renewal, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.void || t.holder == nil || t.node != r.Node {
		return false
	}
	at := time.Now() // before the clock of the lease: a pause in between only shortens
	switch now := t.leaseClock(); {
	case err == nil:
		_, before := t.holder.Until()
		if !t.holder.Granted(r, now) {
			break
		}
		until, _ := t.holder.Until()
		t.standing.Store(&Standing{Node: r.Node, Until: at.Add(until - now)})
		return !before
	case isNotMember(err):
		t.holder.Refused(r)
	default:
		t.holder.Failed(r, now)
	}
	return t.expire()
}

// Standing returns the present one. It is cheap enough for every admission and
// every write. It lapses by itself: compare Until with the clock.
func (c *Cluster) Standing() Standing { return *c.incarnation.standing.Load() }

// Rejoin lets a gateway come back whose incarnation was lost or whose lease has
// lapsed. The caller vouches that nothing which the incarnation had is in flight
// any more: every connection to an upstream is closed. It does nothing while the
// incarnation may still get a standing, so it may be called at every change.
func (c *Cluster) Rejoin() {
	if !c.incarnation.rejoin() {
		return
	}
	boot, voided := c.incarnation.current()
	c.config.Logger.Info("rejoining as a new incarnation", slog.String("boot", boot), slog.Uint64("voided_node", uint64(voided)))
	c.machine.touch() // the renewing goroutine tells gossip
}
