package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Any gateway answers for any ticket: its id names the incarnation that took it
// in, and the agreed view who answers for that one now.

// ticketCalls answers for any ticket.
type ticketCalls struct {
	*pools
	polls    polls
	watchers watchers
}

// ticketPatience is how long a call may take besides what the ticket is waited for.
const ticketPatience = 5 * time.Second

// patience is how long the call may take. A wait without end stays one.
func (c ticketCall) patience() time.Duration { return max(c.Wait, c.Wait+ticketPatience) }

// do carries out a call where the ticket is. While its gateway is being
// replaced by its successor it tries again for a while.
func (g *ticketCalls) do(ctx context.Context, c ticketCall) (admission.Ticket, error) {
	const first, longest = 50 * time.Millisecond, time.Second
	owner, err := replication.ParseID(c.ID)
	if err != nil {
		return admission.Ticket{}, fmt.Errorf("%w: %w", admission.ErrUnknownTicket, err)
	}
	within, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	for pause := first; ; pause = min(2*pause, longest) {
		began, changed := g.now(), g.views.Changed()
		t, err := g.ask(within, owner, c)
		if err == nil || !errors.Is(err, admission.ErrElsewhere) {
			return t, err
		}
		c.Wait = max(0, c.Wait-g.now().Sub(began))
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-changed: // perhaps its successor is known now, and soon takes over
			pause = first / 2
		case <-within.Done():
			if ctx.Err() != nil {
				return admission.Ticket{}, context.Cause(ctx)
			}
			return admission.Ticket{}, err
		}
	}
}

func (g *ticketCalls) ask(ctx context.Context, owner kmutex.Node, c ticketCall) (admission.Ticket, error) {
	view, standing := g.views.View(), g.views.Standing()
	if !g.entitled(standing.Node) {
		return admission.Ticket{}, admission.Isolated
	}
	successor, known := view.Successor(owner)
	if !known {
		if slices.ContainsFunc(view.Members, func(m membership.Member) bool { return m.Node > owner }) {
			return admission.Ticket{}, admission.ErrUnknownTicket // the view here is not too old to have it
		}
		return admission.Ticket{}, admission.ErrElsewhere
	}
	if successor == standing.Node {
		return g.here(ctx, owner, c)
	}
	m, in := view.Member(successor)
	if !in {
		return admission.Ticket{}, admission.ErrElsewhere
	}
	// A gateway that is paused keeps its connections, and says nothing.
	ctx, cancel := g.during(ctx, func() bool {
		now, _ := g.views.View().Successor(owner)
		return now == successor && g.entitled(standing.Node)
	})
	defer cancel()
	if c.Op == opTest {
		return g.polls.ask(ctx, m.Name, c, func() (admission.Ticket, error) {
			c.Wait = 0
			return g.askMember(ctx, m, c)
		})
	}
	return g.askMember(ctx, m, c)
}

// askMember carries out a call at another gateway.
func (g *ticketCalls) askMember(ctx context.Context, m membership.Member, c ticketCall) (admission.Ticket, error) {
	var reply ticketReply
	if err := g.call(ctx, m, ticketsCall, c, &reply); err != nil {
		return admission.Ticket{}, fmt.Errorf("%w: %w", admission.ErrElsewhere, err)
	}
	return reply.ticket(nil)
}

// here carries out a call for a ticket that this gateway answers for.
func (g *ticketCalls) here(ctx context.Context, owner kmutex.Node, c ticketCall) (admission.Ticket, error) {
	p, err := g.poolOf(owner, c.ID)
	if err != nil {
		return admission.Ticket{}, err
	}
	tickets := ticketManager{p}
	switch c.Op {
	case opTest:
		return tickets.test(ctx, c)
	case opRenew:
		err = tickets.renew(c)
	case opUse:
		err = tickets.use(c)
	case opReturn:
		err = tickets.giveBack(c)
	case opEnd:
		return admission.Ticket{}, tickets.end(ctx, c)
	default:
		err = fmt.Errorf("%w: %q", admission.ErrUnknownTicket, c.Op)
	}
	if err != nil {
		return admission.Ticket{}, err
	}
	return tickets.await(ctx, c.ID, 0, nil)
}

// poolOf returns the pool that has, or had, the ticket.
func (g *ticketCalls) poolOf(owner kmutex.Node, id string) (*poolDriver, error) {
	pending, view := false, g.views.View()
	for _, p := range g.all() {
		p.mu.Lock()
		if ts := p.tickets(); ts != nil {
			_, ended, _ := ts.Ended(id)
			if ended || ts.Get(id) != nil {
				p.mu.Unlock()
				return p, nil
			}
			pending = pending || owner != p.self && !ts.Absorbed(owner)
		} else if spec, _ := view.Pool(p.name); spec.Tickets > 0 {
			pending = true // this incarnation has no part in the pool yet, or has not read its disk
		}
		p.mu.Unlock()
	}
	pending = pending || slices.ContainsFunc(view.Pools, func(spec membership.Pool) bool {
		return spec.Tickets > 0 && g.pool(spec.Name) == nil // this incarnation has not followed the view yet
	})
	if pending || !g.entitled(g.views.Standing().Node) {
		return nil, admission.ErrElsewhere // not taken over yet
	}
	return nil, admission.ErrUnknownTicket
}

// answer answers another gateway.
func (g *ticketCalls) answer(ctx context.Context, question []byte) ([]byte, error) {
	const maxCall = 4 << 10
	var c ticketCall
	if len(question) > maxCall {
		return nil, fmt.Errorf("a question of %d bytes about a ticket", len(question))
	}
	if err := json.Unmarshal(question, &c); err != nil {
		return nil, err
	}
	owner, err := replication.ParseID(c.ID)
	var t admission.Ticket
	if err == nil {
		t, err = g.here(ctx, owner, c)
	}
	return json.Marshal(replyOf(t, err))
}
