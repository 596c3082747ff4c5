package telemetry

import (
	"sync"
	"time"
)

// Result is how a request ended that was sent to an upstream.
type Result string

// The results. An answer has its class.
const (
	Result1xx     Result = "1xx" // an upgrade, or a TCP connection that was made
	Result2xx     Result = "2xx"
	Result3xx     Result = "3xx"
	Result4xx     Result = "4xx"
	Result5xx     Result = "5xx"
	ResultDial    Result = "dial"    // no connection
	ResultTimeout Result = "timeout" // no answer in time
	ResultBroken  Result = "broken"  // the connection broke
	ResultLeft    Result = "left"    // the client left before there was an answer
)

var results = []Result{Result1xx, Result2xx, Result3xx, Result4xx, Result5xx, ResultDial, ResultTimeout, ResultBroken, ResultLeft}

// ResultOf returns the result of an answer with this status.
func ResultOf(status int) Result {
	if class := status / 100; class >= 1 && class <= 5 {
		return results[class-1]
	}
	return ResultBroken
}

// failed reports whether the upstream gave no answer.
func (r Result) failed() bool { return r == ResultDial || r == ResultTimeout || r == ResultBroken }

// Upstream counts for one upstream of a pool. It is safe for concurrent use.
type Upstream struct {
	total   map[Result]Counter
	headers *window // times until the header of an answer
	last    tally
}

func newUpstream(m *Metrics, requests counters, pool, url string) *Upstream {
	u := &Upstream{total: make(map[Result]Counter), headers: newWindow(m.now, m.started)}
	for _, r := range results {
		u.total[r] = requests(pool, url, string(r))
	}
	return u
}

// Ended counts an ended request, and returns what it adds to the pool's. header is the time until the answer's header;
// 0: none came.
func (u *Upstream) Ended(r Result, header time.Duration) Recent {
	u.total[r].Inc()
	at := u.headers.now().Sub(u.headers.started)
	if header > 0 {
		u.headers.observe(at, header)
	}
	var recent Recent
	if r != ResultLeft {
		recent.Ended = 1
	}
	if r.failed() {
		recent.Failed = 1
	}
	if r == Result5xx {
		recent.Errors = 1
	}
	u.last.count(at, recent)
	return recent
}

// Recent returns the counts of the requests that ended in the last 60 seconds.
func (u *Upstream) Recent() Recent { return u.last.sum(u.headers.now().Sub(u.headers.started)) }

// Headers returns the times until an answer's header: now, in the last 60 seconds, and usual, in the
// quarter of an hour before.
func (u *Upstream) Headers() (now, usual Window) {
	at := u.headers.now()
	now = u.headers.totals()
	for _, w := range u.headers.past(at.Add(-windowSlots*slotLength), windowSlots*slotLength, keptSlots/windowSlots-1) {
		usual.Count += w.Count
		usual.Sum += w.Sum
	}
	return now, usual
}

// Recent counts requests that ended in the last 60 seconds.
type Recent struct {
	// Ended counts requests that ended with an answer of the upstream or for lack of one.
	// Refused counts requests that were not sent, Full those refused because the queue was full.
	Ended, Refused, Full uint64
	// Errors counts 5xx answers of the upstream. Failed counts requests without its answer, which
	// got 502 or 504 from this gateway.
	Errors, Failed uint64
}

func (r *Recent) add(o Recent) {
	r.Ended += o.Ended
	r.Refused += o.Refused
	r.Full += o.Full
	r.Errors += o.Errors
	r.Failed += o.Failed
}

// tally counts by the second. The zero value is empty.
type tally struct {
	mu    sync.Mutex // guards slots
	slots [windowSlots]struct {
		number int64
		Recent
	}
}

func (t *tally) count(at time.Duration, r Recent) {
	number := int64(at / slotLength)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.slots[number%windowSlots]
	if s.number != number {
		s.number, s.Recent = number, Recent{}
	}
	s.add(r)
}

func (t *tally) sum(at time.Duration) Recent {
	number := int64(at / slotLength)
	t.mu.Lock()
	defer t.mu.Unlock()
	var all Recent
	for i := range t.slots {
		if s := &t.slots[i]; number-s.number < windowSlots {
			all.add(s.Recent)
		}
	}
	return all
}
