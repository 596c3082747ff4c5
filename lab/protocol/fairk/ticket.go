package fairk

import (
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
)

// Tickets outlive their gateway. Who holds one asks for it by its ID, at the gateway
// that answers for it. Here they have their places in line.

// hold notes under which number the machine has a ticket.
func (g *Gateway) hold(n kmutex.Request, t *pool.Ticket) {
	if g.held == nil {
		g.held, g.numbers = make(map[kmutex.Request]*pool.Ticket), make(map[*pool.Ticket]kmutex.Request)
	}
	g.held[n], g.numbers[t] = t, n
}

// letGo forgets a ticket, and returns its number.
func (g *Gateway) letGo(t *pool.Ticket) kmutex.Request {
	n := g.numbers[t]
	delete(g.held, n)
	delete(g.numbers, t)
	return n
}

// Take puts a ticket in line. The pool must have tickets.
func (g *Gateway) Take(n protocol.Request, t *pool.Ticket) {
	g.hold(kmutex.Request(n), t)
	g.step(kmutex.Event{Kind: kmutex.EventAcquire, Request: kmutex.Request(n)})
	g.carry(g.pool.Keep(g.now(), t))
}

// Holds reports whether the machine has a ticket under this number.
func (g *Gateway) Holds(n kmutex.Request) bool { return g.held[n] != nil }

// Sign notes a sign of a ticket's holder.
func (g *Gateway) Sign(t *pool.Ticket) { g.carry(g.pool.Sign(g.now(), t)) }

// Use lets its holder use a ticket's slot, once.
func (g *Gateway) Use(t *pool.Ticket) error {
	fx, err := g.pool.Use(g.now(), t, "lab")
	if err == nil {
		g.carry(fx)
	}
	return err
}

// Finish ends a ticket, as its user does.
func (g *Gateway) Finish(t *pool.Ticket) {
	if fx, err := g.pool.Finish(g.now(), t, t.UsedBy); err == nil {
		g.carry(fx)
	}
}

// grant is a slot for a ticket.
type grant struct {
	ticket *pool.Ticket
	grant  kmutex.Grant
}

// goOn lets the events happen that follow from one.
func (g *Gateway) goOn(granted []grant, ended []*pool.Ticket) {
	for _, h := range granted {
		g.carry(g.pool.TicketGranted(g.now(), g.cfg.Wall(), h.ticket, h.grant))
	}
	for _, t := range ended {
		kind := kmutex.EventCancel
		if t.Granted {
			kind = kmutex.EventRelease
		}
		g.step(kmutex.Event{Kind: kind, Request: g.letGo(t)})
	}
}
