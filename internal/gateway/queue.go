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
	// In the order fair: what clients have had, and from it: who has had more than bound, or would
	// with its places in line, takes no further one while another one waits; negative: nobody waits. A
	// client has so many places as window says. Turned is when these were found.
	shares
	bound  float64
	window int
	turned time.Time
	usual  time.Duration // moving mean of the holds that have ended
	// beyond is how many slots cannot be used here, because their upstreams cannot be reached. Where more are
	// than elsewhere, others pass by who waits: it holds nobody back there.
	beyond int
}

// client is a client with requests that wait, or hold slots, here.
type client struct {
	key   string
	share *share // in the order fair
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
		if q.limits.Fair {
			c.share = q.share(key)
		}
		q.clients[key] = c
	}
	s.client = c
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
	if q.limits.Fair && (c.inLine >= max(1, q.window) || q.isAhead(c, c.inLine)) {
		return false
	}
	return q.hasRoom(c)
}

// hasRoom reports whether one more request of c may hold a slot.
func (q *queue) hasRoom(c *client) bool {
	return q.limits.ClientInFlight == 0 || c.inLine+c.held < q.limits.ClientInFlight
}

// competes reports whether c waits for others, and not for its own requests alone.
func (q *queue) competes(c *client) bool { return c.inLine > 0 || c.waiting > 0 && q.hasRoom(c) }

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
		s.counted, s.owes = 0, c.share.amount(c.share.hold)
		c.share.owes += s.owes
		c.share.recent.got(s.at, s.at.Sub(s.since))
	}
	q.advance(c)
	q.waitEnded(c)
}

// countHolds charges clients for what they hold.
func (q *queue) countHolds(now time.Time) {
	for _, c := range q.clients {
		c.share.owes = 0
	}
	for _, s := range q.slots {
		if s.state == slotGranted && q.count(s, now) {
			share := s.client.share
			s.owes = share.amount(max(0, share.hold-s.counted))
			share.owes += s.owes
		}
	}
}

// count charges s's client for what s has held since it was counted last, and reports whether it has one.
func (q *queue) count(s *claim, now time.Time) bool {
	if s.client == nil || !q.limits.Fair || s.at.IsZero() {
		return false
	}
	held := now.Sub(s.at)
	share := s.client.share
	share.charge(share.amount(held - s.counted))
	share.recent.hold(now, held-s.counted)
	s.counted = held
	return true
}

// countLast is count when s gives its slot back.
func (q *queue) countLast(s *claim, now time.Time) {
	if !q.count(s, now) {
		return
	}
	share := s.client.share
	share.owes = max(0, share.owes-s.owes)
	share.hold = movingMean(share.hold, s.counted)
}

// isAhead reports whether a client with so many places in line has had, or is about to have, so much more
// than another one that waits that it is not its turn. While its holds are not known it has one place.
func (q *queue) isAhead(c *client, places int) bool {
	if places > 0 && c.share.hold == 0 {
		return true
	}
	return q.bound >= 0 && c.share.had()+float64(places)*c.share.amount(c.share.hold) > q.bound
}

// turn finds out whose turn it is, and makes those due that may take a place in line now; who is
// ahead only if so many tokens are free here.
func (q *queue) turn(now time.Time, k, places, free int) {
	q.turned = now
	least, waiting, weight := -1.0, 0, 0.0
	for _, c := range q.clients {
		weight += c.share.weight
		if !q.competes(c) {
			continue
		}
		if had := c.share.had(); least < 0 || had < least {
			least = had
		}
		if !q.isAhead(c, 0) {
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
	slices.SortFunc(next, func(a, b *client) int { return cmp.Compare(a.share.had(), b.share.had()) })
	for _, c := range next {
		q.advance(c)
	}
	for _, c := range next {
		if free > len(q.due) && len(c.behind) > 0 && c.inLine == 0 && q.hasRoom(c) {
			q.makeDue(c.next())
			c.inLine++
		}
	}
}

// quantum is by how much one may be ahead: two holds, since those who are equal are at different points of
// one, and what a client has while the news of it makes its way to the others.
func (q *queue) quantum(k int, weight float64) float64 {
	return 2*q.usual.Seconds() + float64(k)/max(1, weight)*2*sharesEvery.Seconds()
}

// present returns the clients that wait or hold slots here, in the order fair.
func (q *queue) present() map[string]presence {
	all := make(map[string]presence)
	if !q.limits.Fair {
		return all
	}
	for key, c := range q.clients {
		all[key] = presence{q.competes(c), c.share.owes}
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
	if !limits.Fair {
		q.shares = newShares()
	}
	for key, s := range q.of {
		s.weight = q.weight(key)
	}
	for _, c := range q.clients {
		if limits.Fair {
			c.share = q.share(c.key)
		}
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
