package transport

import (
	"errors"
	"time"
)

// beat sends a ping if nothing has arrived for a ping interval, and ends a connection on
// which nothing arrives for longer. The peer does the same, one beat later if it was
// dialed: an end that receives a ping or an answer need not send its own. Loss in one
// direction shows at the end that receives nothing. An end that waits for an acknowledgement
// waits less long: something may depend on it.
func (l *link) beat() {
	l.mu.Lock()
	s := l.session
	if s == nil || l.active == nil {
		l.mu.Unlock()
		return
	}
	s.beats++
	s.silent++
	if s.heard.Swap(false) {
		s.silent = 0
	}
	waits := l.out.messages() > 0 || s.out.pending()
	switch {
	case !waits:
		s.unackedBeats = 0
	case s.silent == 0:
		s.unackedBeats = 1
	default:
		s.unackedBeats++
	}
	// The message that waits may have been sent just before the first of those beats.
	dead := s.silent >= deadBeats || s.unackedBeats > pingBeats
	patience := pingBeats
	if !l.dials() {
		patience++
	}
	s.paddingDue = s.paddingDue || s.beats%paddingBeats == 0
	if s.silent >= patience || waits && s.silent > 0 || s.beats%rttBeats == 0 {
		s.pingDue = true
		l.wakeWriter()
	}
	l.mu.Unlock()
	if dead {
		s.fail(errSilent)
	}
}

// A link counts time in beats. The beats of all links come at the same moments, so that an
// idle process wakes up as seldom as possible.
const (
	// pingBeats make a ping interval. deadBeats without a byte end a connection, or
	// pingBeats without one since an acknowledgement is due.
	pingBeats = 4
	deadBeats = 6
	// rttBeats is how long a busy link goes without measuring its round trip, and
	// paddingBeats, a multiple, how long without proving that long packets pass.
	rttBeats     = 48
	paddingBeats = 4 * rttBeats
)

var errSilent = errors.New("the peer has been silent for too long")

// beat calls the beat of each link, at multiples of the interval on the wall clock, as the
// other gateways do: their pings arrive at the same time, and an idle process wakes up once
// for all of them.
func (t *Transport) beat() {
	interval := t.config.PingInterval / pingBeats
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(untilBeat(time.Now(), interval))
		for _, l := range t.peers.Load().links {
			l.beat()
		}
	}
}

// untilBeat returns the time to a multiple of the interval on the wall clock: the interval,
// or up to half of it more or less if the clock was set.
func untilBeat(now time.Time, interval time.Duration) time.Duration {
	wait := interval - time.Duration(now.UnixNano())%interval
	if wait < interval/2 {
		wait += interval
	}
	return wait
}
