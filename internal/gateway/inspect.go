package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// Operators want to see who waits and who holds a slot, and to cancel requests.
// Only a pointer is kept for that with each claim: the line is copied when
// somebody looks, and sorted after the pool's lock is released.

// errUnknownEntry: nothing that waits here has this name.
var errUnknownEntry = errors.New("nobody waits here under this name")

// Line is what one gateway knows of who is in a pool.
type Line struct {
	// Waiting and Holding, the longest first: as many as were asked for.
	Waiting, Holding []LineEntry
}

// LineEntry is somebody in a pool: a request, or a ticket.
type LineEntry struct {
	// ID names it to Cancel. It is no secret, and not a ticket's own.
	ID   string
	Info admission.RequestInfo
	// Ticket tells that it is a ticket, whose Remark its holder has written.
	Ticket bool
	Remark string
	// For is how long it has waited, or held its slot.
	For time.Duration
	// InLine is how long it has had its place in the line: as long as it waits, but
	// where clients are served in turn. 0: it has none yet, as another request of
	// its client has.
	InLine time.Duration
	// Arrived is when it came, as this gateway's clock says.
	Arrived time.Time
}

// seen is an entry as copied under the lock; what else its claim points to does
// not change.
type seen struct {
	slot   *claim
	from   time.Time // it waits, or holds its slot
	placed time.Time // it has a place in line; zero: its client has another request there
}

// Line returns who is in a pool at this gateway, at most limit that wait and
// limit that hold a slot. It is empty for an unknown pool.
func (g *Gateway) Line(pool string, limit int) Line {
	p := g.pool(pool)
	if p == nil {
		return Line{}
	}
	waiting, holding := look(p)
	return Line{Waiting: entries(p, waiting, limit), Holding: entries(p, holding, limit)}
}

// Own returns the slots of a pool that have been held at this gateway for at least that long by who
// is no request over the network, the first name first: slots of AcquireInto, and of tickets that
// RedeemOwn has redeemed.
func (g *Gateway) Own(pool string, least time.Duration) []LineEntry {
	p := g.pool(pool)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	var out []LineEntry
	for _, s := range p.slots {
		network := s.info != nil && (s.info.Method != "" || s.info.Remote.IsValid())
		if held := now.Sub(s.at); s.state == slotGranted && s.ticket == nil && !network && held >= least {
			e := s.entry(pool)
			e.For = held
			out = append(out, e)
		}
	}
	for g := range p.guests {
		if held := now.Sub(g.since); g.own != nil && held >= least {
			e := *g.own
			e.For = held
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b LineEntry) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// look copies who is here.
func look(p *poolDriver) (waiting, holding []seen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting, holding = make([]seen, 0, p.waiting), make([]seen, 0, p.inFlight)
	for _, s := range p.all() {
		switch {
		case s.state == slotWaiting:
			waiting = append(waiting, seen{s, s.since, s.placed})
		case s.at.IsZero(): // taken over from a lost gateway
			holding = append(holding, seen{s, s.since, s.since})
		default:
			holding = append(holding, seen{s, s.at, s.at})
		}
	}
	return waiting, holding
}

// entries sorts by place: those without one are behind all others.
func entries(p *poolDriver, of []seen, limit int) []LineEntry {
	slices.SortFunc(of, func(a, b seen) int {
		if behind := a.placed.IsZero(); behind != b.placed.IsZero() {
			if behind {
				return 1
			}
			return -1
		}
		return cmp.Or(a.placed.Compare(b.placed), a.from.Compare(b.from), cmp.Compare(a.slot.number, b.slot.number))
	})
	of = of[:min(limit, len(of))]
	out, now := make([]LineEntry, len(of)), p.now()
	for i, e := range of {
		out[i] = e.slot.entry(p.name)
		out[i].For = max(0, now.Sub(e.from))
		if !e.placed.IsZero() {
			out[i].InLine = max(1, now.Sub(e.placed))
		}
	}
	return out
}

// entry describes s, except for how long it has waited or held.
func (s *claim) entry(pool string) LineEntry {
	e := LineEntry{ID: s.id(pool), Arrived: s.since}
	if s.info != nil {
		e.Info = *s.info
	}
	if s.ticket != nil {
		e.Ticket, e.Remark = true, s.ticket.Note
	}
	return e
}

// ParseEntry returns the pool, the incarnation and the number that the id of a LineEntry
// names.
func ParseEntry(id string) (pool string, node kmutex.Node, number uint64, err error) {
	rest, last := cutLast(id)
	pool, middle := cutLast(rest)
	number, wrong := strconv.ParseUint(last, 10, 64)
	n, err := strconv.ParseUint(middle, 10, 64)
	if wrong != nil || err != nil || pool == "" {
		return "", 0, 0, fmt.Errorf("%w: %.100q", errUnknownEntry, id)
	}
	return pool, kmutex.Node(n), number, nil
}

// cutLast cuts s at its last dot.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '.')
	return s[:max(i, 0)], s[i+1:]
}

// FindTrace returns who is in any pool of this gateway with a request of the
// given trace: some of them, if they are many.
func (g *Gateway) FindTrace(trace string) (pool string, found Line) {
	const most = 10
	for _, p := range g.all() {
		waiting, holding := look(p)
		other := func(e seen) bool { return e.slot.info == nil || e.slot.info.Trace != trace }
		found = Line{
			Waiting: entries(p, slices.DeleteFunc(waiting, other), most),
			Holding: entries(p, slices.DeleteFunc(holding, other), most),
		}
		if len(found.Waiting)+len(found.Holding) > 0 {
			return p.name, found
		}
	}
	return "", Line{}
}

// Cancel takes the request or ticket that waits at this gateway under the id of a LineEntry
// out of the line. It fails if none waits under it: one that has its slot by now keeps it.
func (g *Gateway) Cancel(id string) error {
	name, node, number, err := ParseEntry(id)
	if err != nil {
		return err
	}
	if p := g.pool(name); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.all() {
			if s.number == number && s.owner == node && s.state == slotWaiting {
				return cancel(p, s)
			}
		}
	}
	return fmt.Errorf("%w: %.100q", errUnknownEntry, id)
}

// cancel takes s, which waits, out of the line. The caller holds the pool's lock.
func cancel(p *poolDriver, s *claim) error {
	if s.ticket != nil {
		fx, err := p.core.Finish(p.clock(), s.ticket, "") // it waits, so no request uses it
		p.carry(fx)
		return err
	}
	s.err = admission.Cancelled
	p.release(s)
	p.settle()
	return nil
}

// Oldest returns how long the one that has waited longest at this gateway has
// waited; 0: nobody waits.
func (g *Gateway) Oldest(pool string) time.Duration {
	p := g.pool(pool)
	if p == nil {
		return 0
	}
	now := g.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := now
	for _, s := range p.all() {
		if s.state == slotWaiting && s.since.Before(oldest) {
			oldest = s.since
		}
	}
	return now.Sub(oldest)
}

// Crowd is who has a pool's places at this gateway.
type Crowd struct {
	// OldestHold is how long the slot has been held that has been held longest; 0: none is.
	OldestHold time.Duration
	// Client is the address that has most places, waiting or in flight, and Places how many.
	Client netip.Addr
	Places int
	All    int // places, at the same moment
}

// Crowd returns who has the places of a pool at this gateway.
func (g *Gateway) Crowd(pool string) Crowd {
	p := g.pool(pool)
	if p == nil {
		return Crowd{}
	}
	now, clients := g.now(), make(map[netip.Addr]int)
	oldest := now
	p.mu.Lock()
	all := p.all()
	for _, s := range all {
		from := s.since
		if !s.at.IsZero() {
			from = s.at
		}
		if s.state != slotWaiting && from.Before(oldest) {
			oldest = from
		}
		if s.info != nil && s.info.Remote.IsValid() {
			clients[s.info.Remote]++
		}
	}
	p.mu.Unlock()
	c := Crowd{OldestHold: now.Sub(oldest), All: len(all)}
	for client, places := range clients {
		if places > c.Places || places == c.Places && client.Less(c.Client) {
			c.Client, c.Places = client, places
		}
	}
	return c
}

// Tokens returns the numbers of a pool's tokens that are in use at this gateway.
func (g *Gateway) Tokens(pool string) []int {
	p := g.pool(pool)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive() {
		return nil
	}
	var out []int
	running, _ := p.core.Machine().Holdings()
	for _, grant := range running {
		if grant.Token != kmutex.NoToken {
			out = append(out, int(grant.Token))
		}
	}
	return out
}
