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

// client is one of whom requests wait here.
type client struct {
	key string
	// waiting requests, of which inLine have a place in the line.
	waiting, inLine int
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
func (p *pool) atLimit(key string) bool {
	if p.cfg.ClientLimit == 0 {
		return false
	}
	c := p.clients[key]
	return c != nil && c.waiting >= p.cfg.ClientLimit
}

// join makes s wait for its client, and reports whether it takes a place in line
// now. The caller holds the lock.
func (p *pool) join(s *Slot, key string) bool {
	if key == "" || !p.cfg.Fair && p.cfg.ClientLimit == 0 {
		return true
	}
	c := p.clients[key]
	if c == nil {
		c = &client{key: key}
		p.clients[key] = c
	}
	s.client = c
	c.waiting++
	if p.cfg.Fair && c.inLine > 0 {
		c.behind = append(c.behind, s)
		return false
	}
	c.inLine++
	return true
}

// place gives s the last place in line, with the returned event. The caller holds
// the lock.
func (p *pool) place(s *Slot, now time.Time) kmutex.Event {
	p.last++
	s.ticket, s.placed = p.last, now
	p.slots[s.ticket] = s
	return kmutex.Event{Kind: kmutex.EventAcquire, Ticket: s.ticket}
}

// came notes that s is in: its client's next is due for a place. The caller holds
// the lock.
func (p *pool) came(s *Slot) {
	c := s.client
	if c == nil {
		return
	}
	c.inLine--
	if c.inLine == 0 && len(c.behind) > 0 {
		p.due = append(p.due, c.next())
		c.inLine++
	}
	p.left(c)
}

// part takes s, which waits no longer, from its client, and reports whether its
// place in line is left to nobody. The caller holds the lock.
func (p *pool) part(s *Slot) bool {
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

func (p *pool) left(c *client) {
	c.waiting--
	if c.waiting == 0 {
		delete(p.clients, c.key)
	}
}

// configure takes over what this gateway decides about the pool, for who is next
// from now on. The caller holds the lock.
func (p *pool) configure(cfg PoolConfig) {
	p.cfg = cfg
	if p.cfg.QueueLimit == 0 {
		p.cfg.QueueLimit = defaultQueueLimit
	}
	if p.cfg.Fair {
		return // who has a place keeps it
	}
	var behind []*Slot
	for _, c := range p.clients {
		behind = append(behind, c.behind...)
		c.inLine, c.behind = c.waiting, nil
	}
	slices.SortFunc(behind, func(a, b *Slot) int { return a.since.Compare(b.since) })
	for _, s := range behind {
		p.step(p.place(s, s.since))
	}
}

// each yields all slots that wait or are held. The caller holds the lock and
// changes none meanwhile.
func (p *pool) each(yield func(*Slot) bool) {
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
