package gateway

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// A pool may distinguish clients, to bound how many requests of one wait here, and
// to serve them in turn. For the latter a client has one place in line at a time:
// its next request takes one, at the end, when the one before is in. So the line
// itself goes round the clients, over all gateways, and the machine need not know
// of them. Where clients are not distinguished there is no record of them: all requests
// stand in line at once.

// queue decides who takes a place in line next. The pool's lock guards it.
type queue struct {
	limits  PoolConfig
	last    kmutex.Request
	slots   map[kmutex.Request]*claim // that have a place in line, or are held
	clients map[string]*client        // where they are distinguished
	due     []*claim                  // that get their places in line next, in this order
	room    [2]*claim                 // for due while it is short
	// In the order fair: what clients have had, and from it: who has had more than bound takes no
	// place in line while another one waits; negative: nobody waits. A client has so many places as
	// window says. Turned is when these were found.
	shares
	bound  float64
	window int
	turned time.Time
	usual  time.Duration // moving mean of the holds that have ended
}

// client is a client with requests that wait, or hold slots, here.
type client struct {
	key string
	// waiting requests, of which inLine have a place in the line or are due for one, and
	// slots held.
	waiting, inLine, held int
	// behind are the others, in order of arrival.
	behind []*claim
}

// next takes out the first of those behind.
func (c *client) next() *claim {
	s := c.behind[0]
	c.behind[0] = nil
	c.behind = c.behind[1:]
	return s
}

// atLimit reports that no more requests of the client may wait here.
func (q *queue) atLimit(key string) bool {
	if q.limits.ClientLimit == 0 {
		return false
	}
	c := q.clients[key]
	return c != nil && c.waiting >= q.limits.ClientLimit
}

// join makes s due for a place in line, unless it has to wait for another one of its
// client.
func (q *queue) join(s *claim, key string) {
	if key == "" || !q.limits.Fair && q.limits.ClientLimit == 0 && q.limits.ClientInFlight == 0 {
		q.makeDue(s)
		return
	}
	c := q.clients[key]
	if c == nil {
		c = &client{key: key}
		q.clients[key] = c
	}
	s.client = c
	if c.waiting == 0 && q.limits.Fair {
		q.comes(key)
	}
	c.waiting++
	if !q.mayPlace(c) {
		c.behind = append(c.behind, s)
		return
	}
	q.makeDue(s)
	c.inLine++
}

func (q *queue) makeDue(s *claim) {
	if len(q.due) == 0 {
		q.due = q.room[:0]
	}
	q.due = append(q.due, s)
}

// placeNext gives the first of those that are due the last place in line.
func (q *queue) placeNext(now time.Time) kmutex.Request {
	s := q.due[0]
	q.due[0] = nil
	q.due = q.due[1:]
	q.last++
	s.request, s.placed = q.last, now
	q.slots[s.request] = s
	return s.request
}

// mayPlace reports whether one more request of c may take a place in line.
func (q *queue) mayPlace(c *client) bool {
	if q.limits.Fair && (c.inLine >= max(1, q.window) || q.isAhead(c)) {
		return false
	}
	return q.limits.ClientInFlight == 0 || c.inLine+c.held < q.limits.ClientInFlight
}

// advance makes those of c's requests due that may take a place in line now.
func (q *queue) advance(c *client) {
	for len(c.behind) > 0 && q.mayPlace(c) {
		q.makeDue(c.next())
		c.inLine++
	}
}

// admitted notes that s is in: its client's next is due for a place.
func (q *queue) admitted(s *claim) {
	c := s.client
	if c == nil {
		return
	}
	c.inLine--
	c.held++
	if q.limits.Fair {
		s.paid = q.share(c.key).hold
		q.charge(c.key, s.paid.Seconds()/q.weight(c.key))
	}
	q.advance(c)
	q.waitEnded(c)
}

// pay charges what s has held beyond what it has paid for. At its end what it has paid too much comes back.
func (q *queue) pay(s *claim, now time.Time, end bool) {
	if s.client == nil || !q.limits.Fair || s.at.IsZero() {
		return
	}
	held := now.Sub(s.at)
	if held > s.paid || end {
		q.charge(s.client.key, (held-s.paid).Seconds()/q.weight(s.client.key))
		s.paid = held
	}
	if end {
		const weight = 8 // as in serviceRate
		if sh := q.share(s.client.key); sh.hold == 0 {
			sh.hold = held
		} else {
			sh.hold += (held - sh.hold) / weight
		}
	}
}

// isAhead reports whether a client has had so much more than another one that waits that it is not its turn.
func (q *queue) isAhead(c *client) bool { return q.bound >= 0 && q.share(c.key).served > q.bound }

// turn finds out whose turn it is, and makes those due that may take a place in line now; who is
// ahead only if so many tokens are free here.
func (q *queue) turn(now time.Time, k, places, free int) {
	q.turned = now
	least, waiting, weight := -1.0, 0, 0.0
	for key, c := range q.clients {
		weight += q.weight(key)
		if c.waiting == 0 {
			continue
		}
		if served := q.share(key).served; least < 0 || served < least {
			least = served
		}
		if !q.isAhead(c) {
			waiting++
		}
	}
	if q.fresh(now) {
		weight += q.active
	}
	if q.bound = q.floor(now, least); q.bound >= 0 {
		q.bound += q.quantum(k, weight)
	}
	waiting = max(1, waiting)
	q.window = (places + waiting - 1) / waiting
	var next []*client
	for _, c := range q.clients {
		if len(c.behind) > 0 && (q.mayPlace(c) || free > 0) {
			next = append(next, c)
		}
	}
	slices.SortFunc(next, func(a, b *client) int { return cmp.Compare(q.share(a.key).served, q.share(b.key).served) })
	for _, c := range next {
		q.advance(c)
	}
	for _, c := range next {
		if free > len(q.due) && len(c.behind) > 0 && c.inLine == 0 && (q.limits.ClientInFlight == 0 || c.held < q.limits.ClientInFlight) {
			q.makeDue(c.next())
			c.inLine++
		}
	}
}

// quantum is by how much one may be ahead: a hold, and what a client has while the news of it makes
// its way to the others.
func (q *queue) quantum(k int, weight float64) float64 {
	return q.usual.Seconds() + float64(k)/max(1, weight)*2*sharesEvery.Seconds()
}

// waits returns the clients that wait or hold slots here, and whether they wait.
func (q *queue) waits() map[string]bool {
	all := make(map[string]bool, len(q.clients))
	for key, c := range q.clients {
		all[key] = c.waiting > 0
	}
	return all
}

// released notes that s, which was in, gives its slot back.
func (q *queue) released(s *claim) {
	c := s.client
	if c == nil {
		return
	}
	c.held--
	q.advance(c)
	q.forgetIdle(c)
}

// returned notes that s, which was in, waits again in the place that it had.
func (q *queue) returned(s *claim) {
	if c := s.client; c != nil {
		c.held--
		c.inLine++
		c.waiting++
	}
}

// remove takes out s, which waits no longer, and reports whether it leaves a place in line
// that nobody takes over.
func (q *queue) remove(s *claim) bool {
	c := s.client
	if c != nil {
		q.waitEnded(c)
	}
	if s.request == 0 {
		q.removeUnplaced(s)
		return false
	}
	if c == nil {
		return true
	}
	if len(c.behind) == 0 {
		c.inLine--
		return true
	}
	next := c.next()
	next.request, next.placed = s.request, s.placed
	q.slots[next.request] = next
	return false
}

// removeUnplaced takes out s, which has no place in line.
func (q *queue) removeUnplaced(s *claim) {
	c := s.client
	if i := slices.Index(q.due, s); i >= 0 {
		q.due = slices.Delete(q.due, i, i+1)
		if c != nil {
			c.inLine--
			q.advance(c)
		}
		return
	}
	i := slices.Index(c.behind, s)
	c.behind = slices.Delete(c.behind, i, i+1)
}

func (q *queue) waitEnded(c *client) {
	c.waiting--
	q.forgetIdle(c)
}

func (q *queue) forgetIdle(c *client) {
	if c.waiting == 0 && c.held == 0 {
		delete(q.clients, c.key)
	}
}

// configure changes the limits, for requests that take a place from now on. More may be
// due for one then. Those that have one keep it.
func (q *queue) configure(limits PoolConfig) {
	q.limits = limits
	q.limits.QueueLimit = cmp.Or(limits.QueueLimit, admission.DefaultQueueLimit)
	for _, c := range q.clients {
		q.advance(c)
	}
	slices.SortStableFunc(q.due, func(a, b *claim) int { return a.since.Compare(b.since) })
}

// all returns the claims that wait or are held.
func (q *queue) all() []*claim {
	all := slices.AppendSeq(slices.Clone(q.due), maps.Values(q.slots))
	for _, c := range q.clients {
		all = append(all, c.behind...)
	}
	return all
}
