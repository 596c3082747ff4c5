// Package oncelog keeps log lines that others can cause as often as they like
// (peers, clients, a lasting trouble) down to one per cause and minute.
package oncelog

import (
	"sync"
	"time"
)

const (
	// Period is the least time between two lines of one cause.
	Period = time.Minute
	// maxCauses bounds the memory: the text of a cause can come from a peer.
	// Beyond it all causes are forgotten, and each may be logged once more.
	maxCauses = 256
)

// Limit tells which lines may be logged. There is no timer: what is left out is
// reported with the next line of its cause. The zero value is ready; it is safe
// for concurrent use.
type Limit struct {
	mu   sync.Mutex
	seen map[string]entry
}

type entry struct {
	logged     time.Time
	suppressed int
}

// First reports whether a line of this cause may be logged now.
func (l *Limit) First(cause string) bool {
	_, ok := l.Allow(cause)
	return ok
}

// Allow is First, and tells how many lines of the cause were left out since the
// last one.
func (l *Limit) Allow(cause string) (suppressed int, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.seen[cause]
	if known && now.Sub(e.logged) < Period {
		e.suppressed++
		l.seen[cause] = e
		return 0, false
	}
	if l.seen == nil || !known && len(l.seen) >= maxCauses {
		l.seen = make(map[string]entry)
	}
	l.seen[cause] = entry{logged: now}
	return e.suppressed, true
}
