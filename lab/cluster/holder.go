package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/drift"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
	"github.com/kgate/kgate/replication"
)

// replicas is how many successors have copies of a gateway's tickets, and maxTTL the longest time to
// live of one.
const (
	replicas = 2
	maxTTL   = 4 * time.Second
)

// errForgotten means that a ticket was gone of which its holder had been told.
var errForgotten = errors.New("a ticket is forgotten")

// Holder is a client with a ticket. It asks the gateway of its host, which asks the
// gateway that answers for the ticket, and lets the request in on the ticket's slot.
type Holder struct {
	c       *Cluster
	index   int
	host    int
	request protocol.Request // its number at the first gateway; at the upstream, too
	id      string           // empty: it has not been told
	ttl     time.Duration
	hold    time.Duration
	using   bool
	over    bool
	done    bool          // the upstream has answered
	calls   uint64        // of which only the last one's reply counts
	sent    time.Duration // the last one, by the host's clock
	called  time.Duration // the same in true time
	until   time.Duration // the slot may be used, by the host's clock
	lives   time.Duration // true time until which the ticket must be known
	lost    int           // how many gateways had been lost when it was told last
	copies  int           // of the ticket, as it was told last
}

// op is what a holder asks.
type op uint8

const (
	opSign op = iota
	opUse
	opEnd
)

// callMsg asks the gateway that answers for a ticket, replyMsg answers.
type (
	callMsg struct {
		op     op
		holder int
		call   uint64
		id     string
		owner  kmutex.Node
	}
	replyMsg struct {
		holder  int
		call    uint64
		op      op
		granted bool
		epoch   uint64 // in which it was
		at      int    // the upstream that its slot is for
		copies  int    // how many successors have it
		gone    string // it has ended, or nobody knows it: how
		busy    bool   // ask again
		used    bool   // an answer was lost: nobody can tell whether somebody uses the slot
	}
)

func (m *callMsg) String() string {
	return fmt.Sprintf("call %d about the ticket of holder %d", m.op, m.holder)
}
func (m *replyMsg) String() string { return fmt.Sprintf("reply to holder %d: %+v", m.holder, *m) }

// waiting is a call that is answered when the ticket's state is synced.
type waitingCall struct {
	from   int
	call   *callMsg
	ticket *pool.Ticket
}

// Ticket lets a client of a host's gateway take a ticket, and use its slot for hold.
func (c *Cluster) Ticket(host int, ttl, hold time.Duration) *Holder {
	h := &Holder{c: c, index: len(c.holders), host: host, ttl: ttl, hold: hold}
	p := c.processes[host]
	if p == nil || p.leaving || !p.entitled() || p.gateway.Pool().Tickets() == nil {
		h.over = true
		return h
	}
	c.holders = append(c.holders, h)
	h.request = protocol.Request(len(c.requests))
	c.requests = append(c.requests, &Request{host: host, Hold: hold, state: over, holder: h})
	var secret [16]byte
	binary.BigEndian.PutUint64(secret[:], uint64(h.index)+1)
	t := &pool.Ticket{ID: replication.NewID(secret, p.gateway.Node()), TTL: ttl, Stamp: int64(c.Wall(host))}
	p.tracef("holder %d takes ticket %d", h.index, h.request)
	p.gateway.Take(h.request, t)
	h.id, h.sent, h.called = t.ID, p.h.Clock(), c.Now()
	p.calls = append(p.calls, waitingCall{host, &callMsg{op: opSign, holder: h.index, id: t.ID}, t})
	p.after(h.ttl/3, timerHolder, uint64(h.index))
	p.answerCalls()
	return h
}

// Lasts returns how long the ticket may keep its slot, once it has it, also if its
// gateway is lost and its holder gone.
func (h *Holder) Lasts() time.Duration {
	return h.hold + 2*slow(pool.KeepFor(h.ttl)) + slow(h.c.View().LeaseWait())
}

// slow is how long a wait takes by a clock that is a tenth slow.
func slow(wait time.Duration) time.Duration { return wait * 10 / 9 }

// Spent reports that all tokens are withheld, and that the tickets of lost gateways are
// known to nobody: they may have these tokens, for UnknownFor.
func (c *Cluster) Spent() bool {
	if !c.unknown {
		return false
	}
	for _, m := range c.View().Members {
		if p := c.processes[hostOf(m.Name)]; p != nil && p.gateway.Pool() != nil && p.gateway.Pool().Epoch() > 0 {
			if withheld := p.gateway.Pool().Withheld(); withheld.Len() >= c.Pool().K {
				return true
			}
		}
	}
	return false
}

// UnknownFor is how long they are withheld, by a clock that may be slow.
func (c *Cluster) UnknownFor() time.Duration {
	v := pool.View{Wait: c.View().LeaseWait(), MaxTTL: maxTTL}
	return slow(v.UnknownFor())
}

// Over reports whether a holder asks for nothing any more.
func (h *Holder) Over() bool { return h.over }

// call asks who answers for the ticket, as far as the host's gateway knows.
func (h *Holder) call(o op) {
	p := h.c.processes[h.host]
	h.calls++
	h.sent, h.called = p.h.Clock(), h.c.Now()
	owner, _ := replication.ParseID(h.id)
	v := p.h.Core.View()
	heir, _ := v.Successor(owner)
	if to, known := v.Member(heir); known {
		p.h.Tell(hostOf(to.Name), &callMsg{op: o, holder: h.index, call: h.calls, id: h.id, owner: owner})
	}
}

// tick is for the timer of a holder's host.
func (h *Holder) tick() {
	p := h.c.processes[h.host]
	switch {
	case h.over:
		return
	case h.done:
		h.call(opEnd)
		h.over = true // if that is lost, the ticket expires
		return
	case h.using && p.h.Clock() >= h.until:
		h.c.upstream.end(h.request)
		h.over = true
		p.tracef("holder %d breaks off", h.index)
		return
	case p.h.Clock()-h.sent >= h.ttl/4:
		h.call(opSign)
	}
	next := h.ttl / 10
	if h.using {
		next = min(next, h.until-p.h.Clock())
	}
	p.after(next+time.Microsecond, timerHolder, uint64(h.index))
}

// onCall answers for a ticket.
func (p *process) onCall(from int, m *callMsg) {
	reply := &replyMsg{holder: m.holder, call: m.call, op: m.op, busy: true}
	defer func() {
		if reply != nil {
			p.h.Tell(from, reply)
		}
	}()
	if !p.entitled() || p.gateway.Pool().Tickets() == nil {
		return
	}
	ts := p.gateway.Pool().Tickets()
	t := ts.Get(m.id)
	if t == nil {
		how, ended, synced := ts.Ended(m.id)
		if ended && !synced {
			return
		}
		if !ended && m.owner != p.gateway.Node() && !ts.Absorbed(m.owner) {
			return // not taken over yet
		}
		if reply.busy, reply.gone = false, string(how); !ended {
			reply.gone = "unknown"
		}
		return
	}
	switch m.op {
	case opSign:
		p.gateway.Sign(t)
	case opUse:
		if p.gateway.Use(t) != nil {
			reply.busy, reply.used = false, true
			return
		}
	case opEnd:
		p.gateway.Finish(t)
		return
	}
	reply = nil
	p.calls = append(p.calls, waitingCall{from, m, t})
	p.answerCalls()
}

// answerCalls answers those whose tickets are synced.
func (p *process) answerCalls() {
	if len(p.calls) == 0 || p.gateway.Pool() == nil {
		return
	}
	ts := p.gateway.Pool().Tickets()
	calls := p.calls
	p.calls = nil
	for _, w := range calls {
		switch {
		case ts == nil || ts.Get(w.call.id) != w.ticket: // it has ended, or this incarnation has
		case !ts.Synced(w.ticket):
			p.calls = append(p.calls, w)
		case p.entitled():
			at := 0
			if w.ticket.Granted {
				at = p.upstreamOf(w.ticket.Grant.Token)
			}
			p.h.Tell(w.from, &replyMsg{
				at: at, holder: w.call.holder, call: w.call.call, op: w.call.op, granted: w.ticket.Granted, epoch: w.ticket.Epoch,
				copies: min(replicas, len(p.h.Core.View().Members)-1),
			})
		}
	}
}

// onReply takes in what a holder is told.
func (p *process) onReply(m *replyMsg) {
	h := p.c.holders[m.holder]
	if h.over || m.call != h.calls || m.busy {
		return
	}
	if m.used {
		if !h.using {
			h.over = true // the ticket expires
		}
		return
	}
	if m.gone != "" {
		h.gone(p, m.gone)
		return
	}
	h.lives, h.lost = h.called+h.ttl, len(p.c.View().Lost)
	h.copies = m.copies
	until := h.sent + drift.Use(h.ttl)
	switch {
	case h.using:
		h.until = until
	case m.op == opUse && p.h.Clock() < until:
		h.using, h.until = true, until
		p.c.requests[h.request].at = m.at
		p.c.upstream.start(p, h.request, m.epoch)
		p.c.After(sim.World, h.hold, sim.Timer{Kind: timerHeld, Arg: uint64(h.index)})
	case m.granted:
		h.call(opUse)
	}
}

// gone takes in that the ticket is no more. That must not be while its holder gives
// signs of life, unless more gateways were lost than have copies.
func (h *Holder) gone(p *process, how string) {
	if h.using {
		h.c.upstream.end(h.request)
	}
	h.over = true
	p.tracef("holder %d: ticket %s", h.index, how)
	if p.c.Now() < h.lives && len(p.c.View().Lost)-h.lost <= h.copies {
		p.c.Fail(fmt.Errorf("%w: holder %d: %s", errForgotten, h.index, how))
	}
}

// held lets the upstream answer a holder's request.
func (h *Holder) held() {
	if h.over {
		return
	}
	h.c.upstream.end(h.request)
	h.c.upstream.served++
	h.using, h.done = false, true
	h.c.processes[h.host].after(0, timerHolder, uint64(h.index))
}

// endHolders ends the holders of a host whose process ends: the kernel closes their
// connections.
func (c *Cluster) endHolders(host int) {
	for _, h := range c.holders {
		if h.host == host && !h.over {
			if h.over = true; h.using {
				c.upstream.end(h.request)
			}
		}
	}
}
