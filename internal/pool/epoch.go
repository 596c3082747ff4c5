package pool

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// A new epoch of a pool begins with a view that removes a gateway, returns what a lost one
// had, changes k, or repairs a fault. Requests keep their slots and their places.

// enter moves the pool toward the view's epoch.
func (p *Pool) enter(now time.Duration, before uint64) {
	if p.home != nil && !p.home.forming.Planned() {
		p.unplanned = append(p.unplanned, before)
	}
	p.home, p.report, p.repair.wanted, p.overflow, p.expiry = nil, nil, false, false, 0
	p.audit, p.used = audit{}, nil
	v := &p.view
	p.cfg.Memory.unknown.Forget(v.Lost)
	fx, err := p.machine.Step(&kmutex.Event{Kind: kmutex.EventFreeze, Epoch: v.Epoch, K: v.K})
	if err != nil {
		p.refuse(now, err)
		return
	}
	p.fx.Trace = append(p.fx.Trace, fx.Trace...)
	p.state = Frozen
	p.report = &replication.EpochReport{Report: *fx.Report}
	if v.Home == p.cfg.Self {
		p.home = newHome(now, v, p.machine.Spreads())
	}
	if p.disk != DiskUnread || !v.Tickets || v.joins(p.cfg.Self) {
		p.sendReport(now)
	}
}

// sendReport completes the report and sends it to home.
func (p *Pool) sendReport(now time.Duration) {
	r := p.report
	if !p.view.joins(p.cfg.Self) {
		r.Waiting = p.restamp(r.Waiting)
		r.Unplanned = slices.Clone(p.unplanned)
		r.Free.AddAll(p.reclaimed)
		r.Left = p.left()
		r.Bounds = p.cfg.Memory.unknown.Message(now)
	}
	p.state = Reporting
	p.post(Letter{To: p.view.Home, Report: r})
}

// restamp splits the waiting requests into batches by when they took their places, to the
// precision of the line: one ask interval. A request that no longer waits has been
// cancelled since the machine was frozen. The machine has deferred that, and needs the
// request in its place until then.
func (p *Pool) restamp(batches []kmutex.ReportedBatch) []kmutex.ReportedBatch {
	interval := int64(p.cfg.Interval())
	var out []kmutex.ReportedBatch
	for _, batch := range batches {
		for _, t := range batch.Requests {
			stamp, waits := p.cfg.Placed(t)
			switch n := len(out); {
			case !waits && n == 0:
				out = append(out, kmutex.ReportedBatch{})
			case waits && (n == 0 || stamp-out[n-1].Stamp > interval):
				out = append(out, kmutex.ReportedBatch{Stamp: stamp})
			}
			last := &out[len(out)-1]
			last.Requests = append(last.Requests, t)
		}
	}
	return out
}

func (p *Pool) takeAnswer(now time.Duration, from kmutex.Node, a *replication.EpochAnswer) error {
	switch {
	case a.Install == nil:
		return fmt.Errorf("%w: an answer without an install", errLetter)
	case a.Install.Epoch != p.view.Epoch:
		return nil // an epoch that is over
	case from != p.view.Home:
		return fmt.Errorf("%w: an answer of node %d for epoch %d, and home is %d", errLetter, from, p.view.Epoch, p.view.Home)
	case p.state == Reporting:
		p.install(now, a)
	}
	return nil
}

// install begins an epoch. If the machine refuses an event that it had deferred, the epoch
// has begun nevertheless.
func (p *Pool) install(now time.Duration, a *replication.EpochAnswer) {
	in := a.Install
	refused := p.adopt(now, a.HandOvers)
	err := p.step(&kmutex.Event{Kind: kmutex.EventInstall, Install: in})
	if p.machine.Frozen() {
		p.refuse(now, err)
		return
	}
	p.state, p.fx.Begun = Installed, in
	if err != nil {
		p.fx.Err = err
	}
	p.renewTickets(now, a)
	p.cfg.Memory.unknown.Learn(a.Bounds, now)
	for _, t := range refused {
		_ = p.step(&kmutex.Event{Kind: kmutex.EventCancel, Request: t}) // one without a token is not there
	}
	p.installed, p.withheld, p.whole = in.Epoch, in.Withheld, expected(in)
	p.report, p.unplanned, p.reclaimed = nil, nil, nil
	if p.cfg.Audit && p.view.Home == p.cfg.Self {
		p.audit.due = now + p.auditEvery()
		if p.view.Left {
			p.audit.due = now + auditSoon
		}
	}
}
