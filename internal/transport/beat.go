package transport

import "time"

// beat calls the Tick of each connection, at multiples of a sixth of the ping interval on the
// wall clock, as the other gateways do: their pings arrive at the same time, and an idle process
// wakes up once for all of them. While another end owes something it wakes up twice as often.
func (t *Transport) beat() {
	const parts = 6
	interval := t.config.PingInterval / parts
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-timer.C:
		}
		next := interval
		for _, p := range t.all() {
			if p.tick() {
				next = interval / 2
			}
		}
		timer.Reset(untilBeat(time.Now(), next))
	}
}

// all returns the processes that there are.
func (t *Transport) all() []*process {
	t.procs.Lock()
	defer t.procs.Unlock()
	all := make([]*process, 0, len(t.processes))
	for _, p := range t.processes {
		all = append(all, p)
	}
	return all
}

// tick looks at the clock, and reports whether the other end owes something, or messages are being
// delivered.
func (p *process) tick() (owed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session
	if s == nil {
		return false
	}
	s.ticks++
	if err := s.wire.Tick(p.t.now()); err != nil {
		p.finish(s, err)
		return false
	}
	if s.wire.Due() {
		s.wakeWriter()
	}
	s.readMeanwhile()
	return s.wire.Owed() || s.inline
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
