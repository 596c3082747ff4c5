package pool

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// A pool's epoch moves on with a view that takes a gateway out, gives back what
// one has left, changes k, or repairs what went wrong. Requests keep their slots
// and their places meanwhile.

// Follow takes over a view. Its epoch is not older than that of the view before. In
// a pool without tickets the disk does not matter.
func (p *Pool) Follow(now time.Duration, v View, disk Disk) *Effects {
	p.fx.reset()
	before := p.view
	p.view = v
	p.sendEarly()
	p.disk = disk
	p.followTickets()
	if p.state == Void || v.Epoch > before.Epoch {
		p.enter(now, before.Epoch)
	}
	return p.done(now)
}

// sendEarly sends what was kept for members that the view has now. What has
// become of them meanwhile is the links' to say.
func (p *Pool) sendEarly() {
	early := p.early
	p.early = nil
	for i := range early {
		p.send(&early[i])
	}
}

// enter moves the pool toward the view's epoch.
func (p *Pool) enter(now time.Duration, before uint64) {
	if p.home != nil && !p.home.forming.Planned() {
		p.unplanned = append(p.unplanned, before)
	}
	p.home, p.report, p.repair.wanted, p.overflow, p.expiry = nil, nil, false, false, 0
	p.audit, p.used = audit{}, nil
	v := &p.view
	p.cfg.Memory.forget(v.Lost)
	if v.joins(p.cfg.Self) {
		p.install(now, &replication.EpochAnswer{Install: p.genesis()})
		return
	}
	fx, err := p.machine.Step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: v.Epoch, K: v.K})
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
	if p.disk != DiskUnread || !v.Tickets {
		p.sendReport(now)
	}
	p.takeAhead(now)
}

// genesis is how this gateway enters an epoch of which it has nothing to report.
func (p *Pool) genesis() *kmutex.Install {
	v := &p.view
	if founders := v.founders(); v.Epoch == 1 && slices.Contains(founders, p.cfg.Self) {
		return kmutex.Found(v.epochChange(p.machine.Spreads()), founders, p.cfg.Self)
	}
	return kmutex.Genesis(v.Epoch, v.K, v.Home, p.cfg.Self)
}

// Loaded takes in that what the disk has is among the replicas, or that it cannot be
// read.
func (p *Pool) Loaded(now time.Duration, disk Disk) *Effects {
	p.fx.reset()
	p.disk = disk
	if p.state != Void {
		p.followTickets()
	}
	if p.state == Frozen {
		p.sendReport(now)
	}
	return p.done(now)
}

// sendReport completes the report and sends it to home.
func (p *Pool) sendReport(now time.Duration) {
	r := p.report
	r.Waiting = p.restamp(r.Waiting)
	r.Unplanned = slices.Clone(p.unplanned)
	r.Free.AddAll(p.reclaimed)
	r.Left, r.Unknown = p.left(), p.cfg.Memory.ages(now)
	p.state = Reporting
	p.deliver(now, Letter{To: p.view.Home, Report: r})
}

// restamp splits the waiting requests into batches by when their places were taken,
// as finely as the line is: to one ask interval. A request that waits no more has
// been cancelled since the machine was frozen; its cancel is deferred in the
// machine, which wants it in its place until then.
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

// install begins an epoch. What the machine had deferred can be refused; then the
// epoch has begun all the same.
func (p *Pool) install(now time.Duration, a *replication.EpochAnswer) {
	in := a.Install
	refused := p.adopt(now, a.HandOvers)
	err := p.step(kmutex.Event{Kind: kmutex.EventInstall, Install: in})
	if p.machine.Frozen() {
		p.refuse(now, err)
		return
	}
	p.state, p.fx.Begun = Installed, in
	if err != nil {
		p.fx.Err = err
	}
	p.renewTickets(a)
	for _, n := range a.Unknown {
		p.cfg.Memory.since(n, now)
	}
	for _, t := range refused {
		_ = p.step(kmutex.Event{Kind: kmutex.EventCancel, Request: t}) // one without a token is not there
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

// refuse ends what was begun for the view's epoch, and asks for another one.
func (p *Pool) refuse(now time.Duration, err error) {
	p.state = Refused
	p.fx.Err = fmt.Errorf("pool: epoch %d cannot begin: %w", p.view.Epoch, err)
	p.mend(now)
}

// Take takes in a letter. It fails if no gateway that works sends this letter, or if
// this one has no part in the pool; then nothing has changed.
func (p *Pool) Take(now time.Duration, from kmutex.Node, l *Letter) (*Effects, error) {
	p.fx.reset()
	if p.state == Void {
		return &p.fx, errVoid
	}
	err := p.take(now, from, l)
	return p.done(now), err
}

func (p *Pool) take(now time.Duration, from kmutex.Node, l *Letter) error {
	switch {
	case l.Report != nil:
		return p.takeReport(now, from, l.Report)
	case l.Answer != nil:
		return p.takeAnswer(now, from, l.Answer)
	case l.Count != nil:
		if from == p.view.Home { // else a view here or there is old
			p.deliver(now, Letter{To: from, Tokens: p.holdings(l.Count)})
		}
		return nil
	case l.Tokens != nil:
		p.counted(now, from, l.Tokens)
		return nil
	case l.Push != nil:
		return p.takePush(from, l.Push)
	case l.Ack != nil:
		p.takeAck(from, l.Ack)
		return nil
	default:
		return fmt.Errorf("%w: node %d sends an empty one", errLetter, from)
	}
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

// deliver sends a letter, or takes it in here.
func (p *Pool) deliver(now time.Duration, l Letter) {
	if l.To != p.cfg.Self {
		p.fx.Letters = append(p.fx.Letters, l)
		return
	}
	if err := p.take(now, p.cfg.Self, &l); err != nil {
		p.refuse(now, err)
	}
}

// retry is a letter that goes again.
type retry struct {
	at     time.Duration
	letter Letter
}

// Pauses before a letter goes again: they double. Home may only not have seen the
// view yet.
const (
	retryFirst   = 4 * time.Millisecond
	retryLongest = 250 * time.Millisecond
	pushPause    = 100 * time.Millisecond
)

// Undelivered takes in that a letter has not arrived, or may not have, or was not
// taken. It goes again as long as it matters; a count does not, there is a next
// one.
func (p *Pool) Undelivered(now time.Duration, l Letter) *Effects {
	p.fx.reset()
	if l.Push != nil && p.tickets != nil { // what has changed meanwhile goes with it
		p.again = append(p.again, retry{now + pushPause, l})
	} else if p.matters(&l) {
		pause := min(retryFirst<<min(l.tries, 10), retryLongest)
		l.tries++
		if l.Answer != nil && p.home != nil {
			p.home.untaken[l.To] = true
		}
		p.again = append(p.again, retry{now + pause, l})
	}
	return p.done(now)
}

func (p *Pool) matters(l *Letter) bool {
	switch {
	case l.Report != nil:
		return p.state == Reporting && l.Report.Epoch == p.view.Epoch
	case l.Answer != nil:
		return p.state != Void && l.Answer.Install.Epoch == p.view.Epoch && slices.Contains(p.view.Members, l.To)
	case l.Ack != nil:
		return p.tickets != nil && slices.Contains(p.view.Members, l.To)
	default:
		return false
	}
}

func (p *Pool) retry(now time.Duration) {
	p.again = slices.DeleteFunc(p.again, func(r retry) bool {
		due := now >= r.at
		if due && r.letter.Push != nil {
			p.tickets.replicator.Failed(r.letter.To, r.letter.Push.Seq)
		} else if due && p.matters(&r.letter) {
			p.fx.Letters = append(p.fx.Letters, r.letter)
		}
		return due
	})
}

func (p *Pool) nextRetry() time.Duration {
	next := time.Duration(0)
	for _, r := range p.again {
		if next == 0 || r.at < next {
			next = r.at
		}
	}
	return next
}
