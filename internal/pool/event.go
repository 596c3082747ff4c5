package pool

import (
	"fmt"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Follow takes over a view. Its epoch is not older than the epoch of the view before. In
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
	p.askJoined(now)
	return p.done(now)
}

// Loaded takes in that the replicas hold what the disk has, or that the disk cannot be
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

// Step lets the machine take in an event other than freeze and install. After an
// error nothing has changed.
func (p *Pool) Step(now time.Duration, e *kmutex.Event) (*Effects, error) {
	p.fx.reset()
	if p.state == Void {
		return &p.fx, errVoid
	}
	err := p.step(e)
	p.awaitRetry(now)
	return &p.fx, err
}

// awaitRetry sets when a retry interval ends, after an event that needs nothing else of done.
func (p *Pool) awaitRetry(now time.Duration) {
	if p.retries {
		p.done(now)
	}
}

// Bar tells which tokens this gateway cannot use from now on, whatever their epoch. It may come
// before the view that has them.
func (p *Pool) Bar(now time.Duration, barred kmutex.TokenSet) *Effects {
	p.fx.reset()
	p.fx.Err = p.step(&kmutex.Event{Kind: kmutex.EventBar, Barred: barred})
	p.awaitRetry(now)
	return &p.fx
}

// Take takes in a letter. It fails if no correct gateway sends this letter, if this
// gateway has no part in the pool, or with [ErrNotYet]; then nothing has changed.
func (p *Pool) Take(now time.Duration, from kmutex.Node, l *Letter) (*Effects, error) {
	p.fx.reset()
	if p.state == Void {
		return &p.fx, errVoid
	}
	err := p.take(now, from, l)
	return p.done(now), err
}

// MessageLost takes in that the links refused a message to a member. The line has lost
// it, so the pool asks for a new epoch, unless the message's epoch is over anyway.
func (p *Pool) MessageLost(now time.Duration, epoch uint64) *Effects {
	p.fx.reset()
	if p.state == Installed && epoch == p.installed {
		p.mend(now)
	}
	return p.done(now)
}

// Undelivered takes in that a letter has not arrived, may not have arrived, or was refused.
// It is sent again as long as it matters. A count is not: the next one comes anyway.
func (p *Pool) Undelivered(now time.Duration, l Letter) *Effects {
	p.fx.reset()
	if l.Push != nil && p.tickets != nil { // changes since then go with it
		p.again = append(p.again, retry{now + pushPause, l})
	} else if p.matters(&l) {
		pause := min(retryFirst<<min(l.tries, 10), retryLongest)
		l.tries++
		p.again = append(p.again, retry{now + pause, l})
	}
	return p.done(now)
}

// Wake takes in that the time of [Effects].WakeAt has come. A call at another time does
// no harm.
func (p *Pool) Wake(now time.Duration) *Effects {
	p.fx.reset()
	if p.state != Void {
		p.wakeAt = 0
		p.retry(now)
		if p.overflow || p.expiry > 0 && now >= p.expiry {
			p.overflow, p.expiry = false, 0
			p.mend(now)
		}
		p.count(now)
		p.expire(now)
		if p.retryAt > 0 && now >= p.retryAt {
			p.retryAt = 0
			_ = p.step(&kmutex.Event{Kind: kmutex.EventRetryDue}) // the machine never refuses it
		}
	}
	return p.done(now)
}

// End ends the incarnation's part. From now on its tickets are among the replicas of
// lost gateways' tickets; nothing else stays.
func (p *Pool) End() error {
	err := p.voidTickets()
	*p = Pool{cfg: p.cfg}
	return err
}

// done completes the effects of an event: what this gateway has sent itself, what the
// successors lack, and when to wake up.
func (p *Pool) done(now time.Duration) *Effects {
	for len(p.own) > 0 {
		l := p.own[0]
		p.own = p.own[1:]
		if err := p.take(now, p.cfg.Self, &l); err != nil {
			p.refuse(now, err)
		}
	}
	p.pushTickets()
	p.repair.fire(now, p)
	if p.retries && p.retryAt == 0 {
		p.retryAt = now + retryInterval
	}
	p.retries = false
	next := p.repair.next()
	for _, at := range []time.Duration{p.nextRetry(), p.expiry, p.audit.due, p.nextExpiry(), p.retryAt} {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if next != 0 && next != p.wakeAt {
		p.wakeAt, p.fx.WakeAt = next, next
	}
	return &p.fx
}

func (p *Pool) take(now time.Duration, from kmutex.Node, l *Letter) error {
	switch {
	case l.Report != nil:
		return p.takeReport(now, from, l.Report)
	case l.Answer != nil:
		return p.takeAnswer(now, from, l.Answer)
	case l.Count != nil:
		if from == p.view.Home { // else the view here or there is old
			p.post(Letter{To: from, Tokens: p.holdings(l.Count)})
		}
		return nil
	case l.Tokens != nil:
		p.counted(now, from, l.Tokens)
		return nil
	case l.Push != nil:
		return p.takePush(now, from, l.Push)
	case l.Ack != nil:
		p.takeAck(from, l.Ack)
		return nil
	default:
		return fmt.Errorf("%w: an empty one from node %d", errLetter, from)
	}
}
