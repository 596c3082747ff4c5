package gateway

import (
	"log/slog"
	"slices"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// How what a pool has here is ended from outside: by a drain, the end of the process, or
// a lost lease.

// refuseWaiting ends every wait with err.
func (p *poolDriver) refuseWaiting(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range slices.Collect(p.each) {
		if s.state == slotWaiting && s.ticket == nil {
			s.err = err
			p.end(s, kmutex.EventCancel)
		}
	}
}

// breakOff tells those who use slots that these are lost.
func (p *poolDriver) breakOff() {
	p.mu.Lock()
	aborts := p.redeemedAborts()
	for s := range p.each {
		if abort := s.takeAbort(); s.state == slotGranted && abort != nil {
			aborts = append(aborts, abort)
		}
	}
	p.mu.Unlock()
	for _, abort := range aborts {
		abort()
	}
}

// untilIdle returns a channel that is closed when no request waits or is in
// flight; nil: none is.
func (p *poolDriver) untilIdle() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests == 0 {
		return nil
	}
	return p.idle.wait()
}

// void refuses who waits and aborts who is in flight, and returns how many that
// are. The channel is closed when the last of those in flight has ended; nil:
// nobody was.
func (p *poolDriver) void() (refused, aborted int, ended <-chan struct{}) {
	p.mu.Lock()
	aborts := p.redeemedAborts()
	aborted = len(aborts)
	for s := range p.each {
		switch {
		case s.state == slotWaiting:
			refused++
			s.err = admission.Isolated
			s.wake()
			s.state = slotEnded
		case s.ticket != nil: // its holder is elsewhere, and the slot goes to the successor
			s.state = slotEnded
		default:
			aborted++
			s.state = slotLost
			if abort := s.takeAbort(); abort != nil {
				aborts = append(aborts, abort)
			}
		}
	}
	clear(p.slots)
	clear(p.clients)
	p.due = nil
	p.use(-p.inFlight)
	p.waiting, p.requests = 0, aborted
	if aborted > 0 {
		ended = p.idle.wait()
	}
	if err := p.core.End(); err != nil {
		p.log.Error("tickets of the lost incarnation cannot be kept", slog.Any("error", err))
	}
	clear(p.held)
	p.pace(false)
	p.pull.void()
	p.moved.signal(true)
	p.stopTimers()
	p.endLetters()
	p.mu.Unlock()
	for _, abort := range aborts {
		abort()
	}
	return refused, aborted, ended
}

// redeemedAborts returns what tells the requests on tickets' slots that these are lost.
// The caller holds the lock, and calls them without it.
func (p *poolDriver) redeemedAborts() (aborts []func()) {
	for r := range p.redeemed {
		aborts = append(aborts, r.lose)
	}
	return aborts
}
