package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/internal/transport/wire"
)

// Whoever asks here about a ticket of another gateway, and waits, is told by that gateway as soon as the
// ticket changes. This one sends it a [watchLine] for each ticket that somebody begins or ends to wait
// for, and gets one for each that has changed: datagrams, which come unless their connection ends, and
// then both ends forget them. What is watched counts there as asked about all the time.
//
// At the end of a wait, and without one, a question is asked: what it promises counts from there.

const (
	// mostWatched bounds the tickets that are watched at one gateway. Others are asked about every
	// pollEvery.
	mostWatched = 4096
	pollEvery   = time.Second
)

// pollKey is what is waited for: that a ticket is granted no more, or is granted.
type pollKey struct {
	id      string
	granted bool
}

// watchLine begins watch N of a ticket, or ends it if it has no ID; or it tells of the ticket, and the
// watch ends with that.
type watchLine struct {
	N       uint64
	ID      string       `json:",omitempty"`
	Granted bool         `json:",omitempty"`
	Reply   *ticketReply `json:",omitempty"`
}

// say sends it to another gateway. An error says that it was dropped.
func (e *env) say(to string, line watchLine) error {
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return e.links.SendDatagram(transport.To{Name: to}, wire.Tickets, data)
}

// polls are the questions about tickets that other gateways have.
type polls struct {
	*pools
	mu      sync.Mutex
	of      map[pollKey]*poll
	watches map[uint64]*watch
	at      map[string]map[pollKey]*watch // the same, by gateway
}

// ask waits for a ticket of another gateway, as c says. Question asks that gateway.
func (ps *polls) ask(ctx context.Context, at string, c ticketCall, question func() (admission.Ticket, error)) (admission.Ticket, error) {
	key := pollKey{c.ID, c.Granted}
	p := ps.join(key)
	defer ps.leave(key, p)
	for end := time.Now().Add(c.Wait); ; {
		if wait := time.Until(end); wait > 0 {
			if reply, err := ps.wait(ctx, at, key, wait); reply != nil || err != nil {
				return reply.ticket(err)
			}
		}
		t, err := p.next(ctx, question)
		if err != nil || t.Granted != c.Granted || !time.Now().Before(end) {
			return t, err
		}
	}
}

// poll is what was asked and answered last about a ticket. However many clients ask, its gateway gets one
// question at a time.
type poll struct {
	callers int           // the lock of polls guards it
	turn    chan struct{} // whoever fills it may use the rest
	sent    time.Time
	ticket  admission.Ticket
	err     error
}

func (ps *polls) join(key pollKey) *poll {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of[key]
	if p == nil {
		p = &poll{turn: make(chan struct{}, 1)}
		ps.of[key] = p
	}
	p.callers++
	return p
}

func (ps *polls) leave(key pollKey, p *poll) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.callers--; p.callers == 0 {
		delete(ps.of, key)
	}
}

// next returns the answer to a question that was sent after the call.
func (p *poll) next(ctx context.Context, question func() (admission.Ticket, error)) (admission.Ticket, error) {
	came := time.Now()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return admission.Ticket{}, fmt.Errorf("%w: %w", admission.ErrElsewhere, context.Cause(ctx))
	}
	ownEnd := errors.Is(p.err, context.Canceled) || errors.Is(p.err, context.DeadlineExceeded) // that of the caller who asked
	if p.sent.After(came) && !ownEnd {
		return p.ticket, p.err
	}
	p.sent = time.Now()
	p.ticket, p.err = question()
	return p.ticket, p.err
}

// watch is a ticket of another gateway that some wait for.
type watch struct {
	n       uint64
	at      string
	key     pollKey
	callers int
	done    chan struct{}
	reply   *ticketReply // read after done; nil: the connection has ended
}

// wait waits until a ticket has changed, and returns nil if that does not happen in time, or too many
// are watched.
func (ps *polls) wait(ctx context.Context, at string, key pollKey, wait time.Duration) (*ticketReply, error) {
	w := ps.begin(at, key)
	if w == nil {
		wait = min(wait, pollEvery)
		w = new(watch)
	} else {
		defer ps.end(w)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.done:
		if w.reply == nil {
			return nil, fmt.Errorf("%w: %w", admission.ErrElsewhere, transport.ErrLinkDown)
		}
		return w.reply, nil
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", admission.ErrElsewhere, context.Cause(ctx))
	}
}

// begin returns the watch of a ticket; nil if there are too many. The first one tells the other gateway,
// without the lock: a connection that ends takes it.
func (ps *polls) begin(at string, key pollKey) *watch {
	ps.mu.Lock()
	if w := ps.at[at][key]; w != nil || len(ps.at[at]) >= mostWatched {
		defer ps.mu.Unlock()
		if w != nil {
			w.callers++
		}
		return w
	}
	if ps.at[at] == nil {
		ps.at[at] = make(map[pollKey]*watch)
	}
	w := &watch{n: rand.Uint64(), at: at, key: key, callers: 1, done: make(chan struct{})}
	ps.at[at][key], ps.watches[w.n] = w, w
	ps.mu.Unlock()
	if ps.say(at, watchLine{N: w.n, ID: key.id, Granted: key.granted}) != nil {
		ps.lose(at)
	}
	return w
}

func (ps *polls) end(w *watch) {
	ps.mu.Lock()
	w.callers--
	over := w.callers == 0
	if over {
		ps.forget(w)
	}
	ps.mu.Unlock()
	if over {
		_ = ps.say(w.at, watchLine{N: w.n}) // without a connection nothing is watched
	}
}

// forget is called under the lock.
func (ps *polls) forget(w *watch) {
	if ps.watches[w.n] == w {
		delete(ps.watches, w.n)
		delete(ps.at[w.at], w.key)
	}
}

// lose ends all watches at a gateway: the connection has ended.
func (ps *polls) lose(at string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, w := range ps.at[at] {
		ps.forget(w)
		close(w.done)
	}
	delete(ps.at, at)
}

// told takes in what another gateway tells of a ticket.
func (ps *polls) told(by string, line watchLine) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if w := ps.watches[line.N]; w != nil && w.at == by { // otherwise nobody waits any more
		ps.forget(w)
		w.reply = line.Reply
		close(w.done)
	}
}
