package proxy

import (
	"sync"
	"time"
)

// clientRate is how fast a client sends its request's body, or takes the answer. Only the
// time in which it was waited for counts: what an upstream is slow to take, or to send,
// is not the client's fault. Its zero value finds nothing too slow. Times are a hold's.
type clientRate struct {
	over  time.Duration // how long the client is waited for before it is judged; 0: it is not
	least int           // bytes per second; 0: one byte in that time is enough

	mu             sync.Mutex
	waiting, ended bool
	since          time.Duration // when the waiting began that has not been counted yet
	waited         time.Duration
	bytes          uint64
	total          uint64 // at the last sample
}

// begin notes that the client is waited for: for a piece of the body, or for room for one
// of the answer.
func (p *clientRate) begin(now time.Duration) {
	p.mu.Lock()
	p.waiting, p.since = true, now
	p.mu.Unlock()
}

// end notes that the wait is over, and n bytes have moved.
func (p *clientRate) end(now time.Duration, n int, last bool) {
	p.mu.Lock()
	p.countLocked(now)
	p.waiting, p.ended = false, last
	p.movedLocked(uint64(n))
	p.mu.Unlock()
}

func (p *clientRate) movedLocked(n uint64) {
	p.bytes += n
	if n > 0 && p.least == 0 {
		p.waited = 0
	}
}

func (p *clientRate) countLocked(now time.Duration) {
	if p.waiting {
		p.waited += now - p.since
		p.since = now
	}
}

// sample notes how many bytes the client has taken in all, and whether it is waited for
// just now. It takes the place of begin and end where only the kernel knows. The time
// between two samples counts if the client was waited for at both.
func (p *clientRate) sample(now time.Duration, total uint64, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting && waiting {
		p.waited += now - p.since
		p.movedLocked(total - p.total)
	}
	p.waiting, p.since, p.total = waiting, now, total
}

// judge reports whether the client is too slow; else when it should be judged
// again: zero if never.
func (p *clientRate) judge(now time.Duration) (slow bool, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == 0 || p.ended {
		return false, 0
	}
	p.countLocked(now)
	if p.waited >= p.over {
		if p.least == 0 || float64(p.bytes) < float64(p.least)*p.waited.Seconds() {
			return true, 0
		}
		p.waited, p.bytes = 0, 0
	}
	return false, max(p.over-p.waited, p.over/10) // it need not be waited for all the time
}
