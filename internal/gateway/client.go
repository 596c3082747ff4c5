package gateway

import (
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// A pool may tell clients apart, to bound how many requests of one wait here, and
// to serve them in turn. For the latter a client has one place in line at a time:
// its next request takes one, at the end, when the one before is in. So the line
// itself goes round the clients, over all gateways, and the machine need not know
// of them. A client that nobody is told from has no client record: its requests
// all stand in line at once.

// client is one who has requests that wait, or hold slots, here.
type client struct {
	key string
	// waiting requests, of which inLine have a place in the line, and slots held.
	waiting, inLine, held int
	// behind are the others, in order of arrival.
	behind []*Slot
}

// next takes out the first of those behind.
func (c *client) next() *Slot {
	s := c.behind[0]
	c.behind[0] = nil
	c.behind = c.behind[1:]
	return s
}

// atLimit reports that no more requests of the client may wait here. The caller
// holds the lock.
func (p *poolDriver) atLimit(key string) bool {
	if p.cfg.ClientLimit == 0 {
		return false
	}
	c := p.clients[key]
	return c != nil && c.waiting >= p.cfg.ClientLimit
}

// join makes s wait for its client, and reports whether it takes a place in line
// now. The caller holds the lock.
func (p *poolDriver) join(s *Slot, key string) bool {
	if key == "" || !p.cfg.Fair && p.cfg.ClientLimit == 0 && p.cfg.ClientInFlight == 0 {
		return true
	}
	c := p.clients[key]
	if c == nil {
		c = &client{key: key}
		p.clients[key] = c
	}
	s.client = c
	c.waiting++
	if !p.mayPlace(c) {
		c.behind = append(c.behind, s)
		return false
	}
	c.inLine++
	return true
}

// mayPlace reports whether one more request of c may take a place in line. The
// caller holds the lock.
func (p *poolDriver) mayPlace(c *client) bool {
	if p.cfg.Fair && c.inLine > 0 {
		return false
	}
	return p.cfg.ClientInFlight == 0 || c.inLine+c.held < p.cfg.ClientInFlight
}

// advance makes those of c's requests due that may take a place in line now. The
// caller holds the lock.
func (p *poolDriver) advance(c *client) {
	for len(c.behind) > 0 && p.mayPlace(c) {
		p.due = append(p.due, c.next())
		c.inLine++
	}
}

// place gives s the last place in line, with the returned event. The caller holds
// the lock.
func (p *poolDriver) place(s *Slot, now time.Time) kmutex.Event {
	p.last++
	s.ticket, s.placed = p.last, now
	p.slots[s.ticket] = s
	return kmutex.Event{Kind: kmutex.EventAcquire, Request: s.ticket}
}

// came notes that s is in: its client's next is due for a place. The caller holds
// the lock.
func (p *poolDriver) came(s *Slot) {
	c := s.client
	if c == nil {
		return
	}
	c.inLine--
	c.held++
	p.advance(c)
	p.left(c)
}

// gave notes that s, which was in, gives its slot back. The caller holds the lock.
func (p *poolDriver) gave(s *Slot) {
	c := s.client
	if c == nil {
		return
	}
	c.held--
	p.advance(c)
	p.forgetIdle(c)
}

// part takes s, which waits no longer, from its client, and reports whether its
// place in line is left to nobody. The caller holds the lock.
func (p *poolDriver) part(s *Slot) bool {
	c := s.client
	if c == nil {
		return true
	}
	p.left(c)
	if s.ticket == 0 {
		i := slices.Index(c.behind, s)
		c.behind = slices.Delete(c.behind, i, i+1)
		return false
	}
	if len(c.behind) == 0 {
		c.inLine--
		return true
	}
	next := c.next()
	next.ticket, next.placed = s.ticket, s.placed
	p.slots[next.ticket] = next
	return false
}

func (p *poolDriver) left(c *client) {
	c.waiting--
	p.forgetIdle(c)
}

func (p *poolDriver) forgetIdle(c *client) {
	if c.waiting == 0 && c.held == 0 {
		delete(p.clients, c.key)
	}
}

// configure takes over what this gateway decides about the pool, for who is next
// from now on. The caller holds the lock.
func (p *poolDriver) configure(cfg PoolConfig) {
	p.cfg = cfg
	if p.cfg.QueueLimit == 0 {
		p.cfg.QueueLimit = defaultQueueLimit
	}
	// Who has a place keeps it.
	for _, c := range p.clients {
		p.advance(c)
	}
	due := slices.Clone(p.due)
	p.due = p.due[:0]
	slices.SortFunc(due, func(a, b *Slot) int { return a.since.Compare(b.since) })
	for _, s := range due {
		p.step(p.place(s, s.since))
	}
}

// each yields all slots that wait or are held. The caller holds the lock and
// changes none meanwhile.
func (p *poolDriver) each(yield func(*Slot) bool) {
	for _, s := range p.slots {
		if !yield(s) {
			return
		}
	}
	for _, c := range p.clients {
		for _, s := range c.behind {
			if !yield(s) {
				return
			}
		}
	}
}
