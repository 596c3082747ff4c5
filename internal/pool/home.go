package pool

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// home is the work of the pool's home for an epoch: it waits for the reports of all
// founders, plans once, and answers each member. It keeps the plan until the next epoch,
// for gateways that join, and those whose answer was lost.
type home struct {
	forming *replication.EpochChange
	since   time.Duration // when it began to wait for the reports
	failed  bool
}

func newHome(now time.Duration, v *View, spread bool) *home {
	forming := replication.NewEpochChange(v.epochChange(spread), v.founders(), slices.Clone(v.Lost), v.UnknownFor())
	return &home{forming: forming, since: now}
}

// Missing returns, at home, the gateways whose reports the pool's epoch waits for, in
// ascending order, and since when it waits; none if it waits for no report.
func (p *Pool) Missing() (nodes []kmutex.Node, since time.Duration) {
	if p.home == nil || p.home.failed || p.home.forming.Planned() {
		return nil, 0
	}
	return p.home.forming.Missing(), p.home.since
}

// takeReport takes in a report, at home; with the last one the epoch is planned.
// A report that comes again is answered again.
func (p *Pool) takeReport(now time.Duration, from kmutex.Node, r *replication.EpochReport) error {
	switch {
	case r.Epoch < p.view.Epoch:
		return nil // superseded: the sender gets the newer view, too
	case r.Epoch > p.view.Epoch, !slices.Contains(p.view.Members, from): // the view that has them is on its way
		return ErrNotYet
	case p.home == nil || r.Node != from:
		return fmt.Errorf("%w: a report of node %d for epoch %d from node %d, and home is %d", errLetter, r.Node, r.Epoch, from, p.view.Home)
	case p.home.failed:
		return nil // a new epoch is asked for
	}
	f := p.home.forming
	if f.Planned() {
		p.answer(from)
		return nil
	}
	if err := f.Admit(*r); err != nil {
		p.home.failed = true
		p.refuse(now, err)
		return nil
	}
	if !f.Planned() {
		return nil
	}
	p.fx.Doubled = f.Doubled()
	p.awaitUnknown(now, f.Unknown())
	for _, n := range p.view.Members {
		p.answer(n)
	}
	return nil
}

func (p *Pool) answer(n kmutex.Node) {
	a := p.home.forming.Answer(n)
	if a == nil { // n joins
		a = &replication.EpochAnswer{Install: kmutex.Genesis(p.view.epochChange(false), n)}
	}
	p.post(Letter{To: n, Answer: a})
}

// awaitUnknown makes the epoch end when the tokens can come back that lost gateways whose
// tickets no gateway knows may still use.
func (p *Pool) awaitUnknown(now time.Duration, unknown replication.Unknown) {
	if len(unknown) == 0 {
		return
	}
	oldest := now
	for _, b := range unknown {
		oldest = min(oldest, now+b.Since)
	}
	p.fx.Unknown, p.expiry = slices.Sorted(maps.Keys(unknown)), max(1, oldest+p.view.UnknownFor())
	p.askJoined(now)
}

// askJoined asks for another epoch if a gateway that has joined may know tickets that nobody
// knew when this one was planned: it says so only in an epoch that it founds.
func (p *Pool) askJoined(now time.Duration) {
	if p.expiry > 0 && slices.Max(p.view.Members) > p.view.Began {
		p.mend(now)
	}
}
