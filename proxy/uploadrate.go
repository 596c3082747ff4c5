package proxy

import (
	"sync"
	"time"
)

// uploadRate is how fast a client's body comes. Only the time in which it was waited
// for counts: what an upstream is slow to take is not the client's fault. Its
// zero value finds nothing too slow. Times are a hold's.
type uploadRate struct {
	least int           // bytes per second
	over  time.Duration // how long a body is waited for before it is judged

	mu      sync.Mutex
	reading bool
	since   time.Duration // when the waiting began that has not been counted yet
	waited  time.Duration
	bytes   int
	ended   bool
}

// begin notes that a piece of the body is waited for.
func (p *uploadRate) begin(now time.Duration) {
	p.mu.Lock()
	p.reading, p.since = true, now
	p.mu.Unlock()
}

// end notes that n bytes of it have come.
func (p *uploadRate) end(now time.Duration, n int, last bool) {
	p.mu.Lock()
	p.countLocked(now)
	p.reading, p.ended = false, last
	p.bytes += n
	p.mu.Unlock()
}

func (p *uploadRate) countLocked(now time.Duration) {
	if p.reading {
		p.waited += now - p.since
		p.since = now
	}
}

// judge reports whether the body comes too slowly; else when it should be judged
// again: zero if never.
func (p *uploadRate) judge(now time.Duration) (slow bool, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 || p.ended {
		return false, 0
	}
	p.countLocked(now)
	if p.waited >= p.over {
		if float64(p.bytes) < float64(p.least)*p.waited.Seconds() {
			return true, 0
		}
		p.waited, p.bytes = 0, 0
	}
	return false, max(p.over-p.waited, p.over/10) // it need not be waited for all the time
}
