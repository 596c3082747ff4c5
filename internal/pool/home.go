package pool

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// home is what the pool's home does for an epoch: it waits for the reports of all
// founders, plans once, and answers everybody. The plan stays until the next
// epoch, for those whose answer was lost.
type home struct {
	forming *replication.EpochChange
	since   time.Duration // when it began to wait: for the reports, then for the answers
	failed  bool
	// untaken are the gateways whose answer has failed to arrive, and has not since.
	untaken map[kmutex.Node]bool
}

func newHome(now time.Duration, v *View, spread bool) *home {
	forming := replication.NewEpochChange(v.epochChange(spread), v.founders(), slices.Clone(v.Lost), v.UnknownFor())
	return &home{forming: forming, since: now, untaken: make(map[kmutex.Node]bool)}
}

// Missing returns, at home, the gateways that the pool's epoch waits for, in ascending
// order, and since when; nobody if it waits for none. It waits for reports first. Then it
// waits for the gateways whose answer did not arrive at the first try: tokens go there that
// nobody can use. An answer that is just slow is not missed.
func (p *Pool) Missing() (nodes []kmutex.Node, since time.Duration) {
	if p.home == nil || p.home.failed {
		return nil, 0
	}
	if p.home.forming.Planned() {
		return slices.Sorted(maps.Keys(p.home.untaken)), p.home.since
	}
	return p.home.forming.Missing(), p.home.since
}

// Delivered takes in that a letter has arrived and was taken. Only answers matter.
func (p *Pool) Delivered(l Letter) {
	if l.Answer != nil && p.home != nil && l.Answer.Install.Epoch == p.view.Epoch {
		delete(p.home.untaken, l.To)
	}
}

// takeReport takes in a report, at home; with the last one the epoch is planned.
// One that comes again is answered again.
func (p *Pool) takeReport(now time.Duration, from kmutex.Node, r *replication.EpochReport) error {
	switch {
	case r.Epoch > p.view.Epoch: // the view that says so is on its way
		if p.ahead == nil {
			p.ahead = make(map[kmutex.Node]*replication.EpochReport)
		}
		p.ahead[from] = r
		return nil
	case r.Epoch < p.view.Epoch:
		return nil // superseded: the sender hears of the newer epoch, too
	case p.home == nil || r.Node != from:
		return fmt.Errorf("%w: a report of node %d for epoch %d from node %d, and home is %d", errLetter, r.Node, r.Epoch, from, p.view.Home)
	case p.home.failed:
		return nil // a new epoch is asked for
	}
	f := p.home.forming
	if f.Planned() {
		p.answer(now, from)
		return nil
	}
	for n, age := range r.Unknown {
		p.cfg.Memory.since(n, now-age)
	}
	if err := f.Admit(*r); err != nil {
		p.home.failed = true
		p.refuse(now, err)
		return nil
	}
	if !f.Planned() {
		return nil
	}
	p.home.since = now
	p.fx.Doubled = f.Doubled()
	p.awaitUnknown(now, f.Unknown())
	for _, n := range p.view.founders() {
		p.answer(now, n)
	}
	return nil
}

// takeAhead takes in the reports that have come before the view.
func (p *Pool) takeAhead(now time.Duration) {
	ahead := p.ahead
	p.ahead = nil
	for _, n := range slices.Sorted(maps.Keys(ahead)) {
		// One that makes no sense is none; the answer to that is a log entry of
		// the links when it comes in time.
		_ = p.takeReport(now, n, ahead[n])
	}
}

func (p *Pool) answer(now time.Duration, n kmutex.Node) {
	if a := p.home.forming.Answer(n); a != nil {
		p.deliver(now, Letter{To: n, Answer: a})
	}
}

// awaitUnknown has the epoch end when the tokens can come back that gateways may use whose
// tickets nobody knows.
func (p *Pool) awaitUnknown(now time.Duration, nodes []kmutex.Node) {
	if len(nodes) == 0 {
		return
	}
	oldest := now
	for _, n := range nodes {
		oldest = min(oldest, p.cfg.Memory.since(n, now))
	}
	p.fx.Unknown, p.expiry = nodes, max(1, oldest+p.view.UnknownFor())
}

// since notes that nobody has known a lost gateway's tickets since at, and returns
// since when that has been so.
func (m *Memory) since(n kmutex.Node, at time.Duration) time.Duration {
	if m.unknown == nil {
		m.unknown = make(map[kmutex.Node]time.Duration)
	}
	if known, ok := m.unknown[n]; !ok || at < known {
		m.unknown[n] = at
	}
	return m.unknown[n]
}

// forget drops what the view has forgotten.
func (m *Memory) forget(lost []replication.Lost) {
	maps.DeleteFunc(m.unknown, func(n kmutex.Node, _ time.Duration) bool {
		return !slices.ContainsFunc(lost, func(l replication.Lost) bool { return l.Node == n })
	})
}

// ages tells for how long the tickets of lost gateways have been unknown.
func (m *Memory) ages(now time.Duration) map[kmutex.Node]time.Duration {
	ages := make(map[kmutex.Node]time.Duration, len(m.unknown))
	for n, since := range m.unknown {
		ages[n] = now - since
	}
	return ages
}
