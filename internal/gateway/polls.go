package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// Whoever asks here about a ticket of another gateway, and waits, is told by that gateway as soon as the
// ticket changes. There is one stream to each gateway for all of them: this one writes a [watchLine]
// for each ticket that somebody begins or ends to wait for, the other one a [watchReply] for each
// ticket that has changed. What is watched counts there as asked about all the time.
//
// At the end of a wait, and without one, a question is asked: what it promises counts from there.

const (
	// mostWatched bounds the tickets that are watched at one gateway. Others are asked about every
	// pollEvery.
	mostWatched = 4096
	pollEvery   = time.Second
	// longestLine bounds a line of such a stream.
	longestLine = 64 << 10
)

// pollKey is what is waited for: that a ticket is granted no more, or is granted.
type pollKey struct {
	id      string
	granted bool
}

// watchLine begins to watch a ticket, or ends that if it has no ID.
type watchLine struct {
	N       uint64
	ID      string `json:",omitempty"`
	Granted bool   `json:",omitempty"`
}

// watchReply tells of the ticket of watch N, which ends with it.
type watchReply struct {
	N uint64
	ticketReply
}

// polls are the questions about tickets that other gateways have.
type polls struct {
	*pools
	mu            sync.Mutex
	of            map[pollKey]*poll
	subscriptions map[kmutex.Node]*subscription
}

// ask waits for a ticket of another gateway, as c says. Open opens a stream to that gateway, and
// question asks it.
func (ps *polls) ask(ctx context.Context, at kmutex.Node, c ticketCall, open func() (net.Conn, error), question func() (admission.Ticket, error)) (admission.Ticket, error) {
	key := pollKey{c.ID, c.Granted}
	p := ps.join(key)
	defer ps.leave(key, p)
	for end := time.Now().Add(c.Wait); ; {
		if wait := time.Until(end); wait > 0 {
			if reply, err := ps.subscription(at, open).wait(ctx, key, wait); reply != nil || err != nil {
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

// subscription is the stream to one gateway, for as long as that lasts.
type subscription struct {
	ended chan struct{} // closed when it is over
	err   error         // why; read after ended
	wake  chan struct{}

	mu      sync.Mutex
	lines   []watchLine // to be written
	last    uint64
	watches map[uint64]*watch
	of      map[pollKey]*watch
}

// watch is a ticket that some wait for.
type watch struct {
	n       uint64
	key     pollKey
	callers int
	done    chan struct{}
	reply   *ticketReply // read after done
}

// subscription returns the subscription at a gateway. If there is none, it begins one.
func (ps *polls) subscription(at kmutex.Node, open func() (net.Conn, error)) *subscription {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if s := ps.subscriptions[at]; s != nil {
		return s
	}
	s := &subscription{
		ended: make(chan struct{}), wake: make(chan struct{}, 1),
		watches: make(map[uint64]*watch), of: make(map[pollKey]*watch),
	}
	ps.subscriptions[at] = s
	ps.background(func() { // not once Close has begun: waits end in their time then
		s.err = s.run(ps.ctx, open)
		ps.mu.Lock()
		delete(ps.subscriptions, at)
		ps.mu.Unlock()
		close(s.ended)
	})
	return s
}

// run carries the subscription until its stream ends.
func (s *subscription) run(ctx context.Context, open func() (net.Conn, error)) error {
	conn, err := open()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var wg sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() { s.write(conn, over) })
	s.read(conn)
	close(over)
	_ = conn.Close()
	wg.Wait()
	return transport.ErrLinkDown
}

// wait waits until a ticket has changed, and returns nil if that does not happen in time, or too many
// are watched.
func (s *subscription) wait(ctx context.Context, key pollKey, wait time.Duration) (*ticketReply, error) {
	w := s.begin(key)
	if w == nil {
		wait = min(wait, pollEvery)
		w = new(watch)
	} else {
		defer s.end(w)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.reply, nil
	case <-timer.C:
		return nil, nil
	case <-s.ended:
		return nil, fmt.Errorf("%w: %w", admission.ErrElsewhere, s.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", admission.ErrElsewhere, context.Cause(ctx))
	}
}

// begin returns the watch of a ticket; nil if there are too many.
func (s *subscription) begin(key pollKey) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of[key]
	if w == nil {
		if len(s.of) >= mostWatched {
			return nil
		}
		s.last++
		w = &watch{n: s.last, key: key, done: make(chan struct{})}
		s.watches[w.n], s.of[key] = w, w
		s.say(watchLine{N: w.n, ID: key.id, Granted: key.granted})
	}
	w.callers++
	return w
}

func (s *subscription) end(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.callers--; w.callers == 0 && s.watches[w.n] == w {
		s.forget(w)
		s.say(watchLine{N: w.n})
	}
}

func (s *subscription) forget(w *watch) {
	delete(s.watches, w.n)
	delete(s.of, w.key)
}

// say has a line written. It is called under the lock.
func (s *subscription) say(line watchLine) {
	s.lines = append(s.lines, line)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write writes lines until the stream is over.
func (s *subscription) write(conn net.Conn, over <-chan struct{}) {
	out := bufio.NewWriter(conn)
	lines := json.NewEncoder(out)
	for {
		select {
		case <-s.wake:
		case <-over:
			return
		}
		s.mu.Lock()
		all := s.lines
		s.lines = nil
		s.mu.Unlock()
		for _, line := range all {
			_ = lines.Encode(line) // Flush reports it
		}
		if out.Flush() != nil {
			_ = conn.Close()
			return
		}
	}
}

// read takes in what the other gateway tells, until the stream ends.
func (s *subscription) read(conn net.Conn) {
	in := bufio.NewScanner(conn)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		var reply watchReply
		if json.Unmarshal(in.Bytes(), &reply) != nil {
			return
		}
		s.mu.Lock()
		if w := s.watches[reply.N]; w != nil { // otherwise nobody waits any more
			s.forget(w)
			w.reply = &reply.ticketReply
			close(w.done)
		}
		s.mu.Unlock()
	}
}
