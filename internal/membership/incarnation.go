package membership

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
)

// errNotMember means that the leader knows the incarnation as lost.
var errNotMember = errors.New("membership: this incarnation is lost")

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

// newIncarnation begins with a process; now is bootNow, except in tests.
func newIncarnation(boot string, now func() time.Time) *incarnation {
	t := &incarnation{start: time.Now(), now: now, leased: now(), first: boot, boot: boot}
	t.standing.Store(&Standing{})
	return t
}

// clock tells the time to the leader's rules and to who grants leases. While the
// machine sleeps it may stop: then they wait longer.
func (i *incarnation) clock() time.Duration { return time.Since(i.start) }

// leaseClock tells the time to this gateway's own lease. It goes on while the machine
// sleeps: the next look at the lease then finds it over. Standing.Until is on the
// clock of the timers all the same, because it is read for each admission.
func (i *incarnation) leaseClock() time.Duration { return i.now().Sub(i.leased) }

// at returns what the clock showed at an instant.
func (i *incarnation) at(instant time.Time) time.Duration { return instant.Sub(i.start) }

// current returns who this gateway is now, and whom it has been before
// without anything left of it.
func (i *incarnation) current() (boot string, voided kmutex.Node) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.boot, i.voided
}

// in returns the node that a view has of this incarnation, if it has one.
func (i *incarnation) in(v *View, name string) (kmutex.Node, bool) {
	boot, _ := i.current()
	m, ok := v.Named(name)
	if !ok || m.Boot != boot {
		return 0, false
	}
	return m.Node, true
}

// follow takes in a view. It reports whether the standing began or ended.
func (i *incarnation) follow(v *View, name string, terms lease.Terms) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.void {
		return false
	}
	m, in := v.Named(name)
	in = in && m.Boot == i.boot
	switch {
	case in && i.holder == nil && terms.Lease > 0:
		i.node, i.holder = m.Node, lease.NewHolder(terms, m.Node, i.leaseClock())
		return false
	case !in && (i.node != 0 || v.LostBoot(name, i.boot)):
		i.end()
		return true
	default:
		return i.expire()
	}
}

// expire notes that the lease has lapsed. The caller holds mu.
func (i *incarnation) expire() bool {
	if i.void || i.holder == nil || !i.holder.Over(i.leaseClock()) {
		return false
	}
	i.end()
	return true
}

// end voids the incarnation. The caller holds mu.
func (i *incarnation) end() {
	i.void = true
	i.standing.Store(&Standing{})
}

// rejoin begins the next incarnation if the present one is void.
func (i *incarnation) rejoin() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expire()
	if !i.void {
		return false
	}
	i.rejoins++
	i.boot = fmt.Sprintf("%s.%d", i.first, i.rejoins)
	if i.node != 0 {
		i.voided = i.node
	}
	i.node, i.holder, i.void = 0, nil, false
	return true
}

// renewal returns the one that is due, and how long until the next thing
// happens: a renewal, or the end of the lease.
func (i *incarnation) renewal() (r lease.Renewal, due bool, wait time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.void || i.holder == nil {
		return lease.Renewal{}, false, time.Hour
	}
	now := i.leaseClock()
	if due = now >= i.holder.Due(); due {
		r = i.holder.Send(now)
		// All gateways renew at the same moments of the wall clock, so that one round of the
		// leader's is for all.
		interval := i.holder.Due() - now
		i.holder.DueBy(now + interval - time.Duration(time.Now().UnixNano())%interval)
	}
	wait = i.holder.Due() - now
	if until, held := i.holder.Until(); held {
		wait = min(wait, until-now)
	}
	return r, due, max(wait, 0)
}

// answered takes in what became of a renewal. It reports whether the standing
// began or ended.
func (i *incarnation) answered(r lease.Renewal, err error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.void || i.holder == nil || i.node != r.Node {
		return false
	}
	at := time.Now() // before the clock of the lease: a pause in between only shortens
	switch now := i.leaseClock(); {
	case err == nil:
		_, before := i.holder.Until()
		if !i.holder.Granted(r, now) {
			break
		}
		until, _ := i.holder.Until()
		i.standing.Store(&Standing{Node: r.Node, Until: at.Add(until - now)})
		return !before
	case errors.Is(err, errNotMember):
		i.holder.Refused(r)
	default:
		i.holder.Failed(r, now)
	}
	return i.expire()
}
