package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/kgate/kgate/internal/peercert"
	"github.com/kgate/kgate/internal/transport/wire"
)

// dialLoop dials until ctx ends, whenever there is no connection. The end with the lower name
// dials at once. The other one helps when that has not worked for a while: the lower one may be
// able to accept connections and not to open any.
func (p *process) dialLoop(ctx context.Context) {
	pauses := backoff{min: p.t.config.backoffMin, max: p.t.config.backoffMax}
	for ctx.Err() == nil {
		if s, _, _ := p.current(); s != nil { // from the other end
			select {
			case <-s.stop:
				p.end(s, s.err)
			case <-ctx.Done():
			}
			continue
		}
		if wait := p.dialDelay(); wait > 0 {
			if !sleep(ctx, wait) {
				return
			}
			continue
		}
		began := time.Now()
		err := p.connect(ctx)
		if !sleep(ctx, pauses.after(time.Since(began), err)) {
			return
		}
	}
}

// backoff is how long to wait between attempts to connect.
type backoff struct{ min, max, next time.Duration }

// after returns the pause after an attempt that took this long, its connection included.
func (b *backoff) after(took time.Duration, err error) time.Duration {
	if b.next == 0 || err == nil && took >= b.max {
		// It lasted for a while: the next attempt comes soon. Otherwise something keeps
		// breaking it.
		b.next = b.min
	}
	pause := b.next
	b.next = min(2*b.next, b.max)
	return pause/2 + rand.N(pause/2+1)
}

// helpAfter is how many of the shortest pauses between attempts the end with the higher name
// leaves the dialling to the other one.
const helpAfter = 10

// dialDelay returns how much longer this end leaves the dialling to the other one.
func (p *process) dialDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	const unknown = time.Second // a view may bring an address
	switch {
	case p.addr == "":
		return unknown
	case p.pair.Lower:
		return 0
	default:
		return helpAfter*p.t.config.backoffMin - time.Since(p.ended)
	}
}

// connect makes one attempt, and returns when the connection is over. The error is nil if
// there was a connection.
func (p *process) connect(wanted context.Context) error {
	ctx, cancel := context.WithTimeout(wanted, p.t.config.dialTimeout)
	defer cancel()
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	s, err := p.attempt(ctx, addr, 0)
	if s == nil && err != nil {
		return p.attemptFailed(wanted, err)
	}
	if err != nil {
		if p.linkless() { // review has noted it otherwise
			return p.attemptFailed(wanted, err)
		}
		return err
	}
	if s == nil { // the other end was quicker
		return nil
	}
	defer context.AfterFunc(wanted, func() { s.fail(errRemoved) })()
	s.run()
	return nil
}

// attempt makes one attempt. The session, which is to be run, is nil if there is another
// connection, or will be; with an error it has ended after the other end had answered. A host that does
// not answer at all is given up after first; 0: when ctx ends.
func (p *process) attempt(ctx context.Context, addr string, first time.Duration) (*session, error) {
	raw, conn, err := p.t.dial(ctx, addr, first)
	if err != nil {
		return nil, err
	}
	if err := peercert.OfConn(conn, p.name); err != nil {
		_ = raw.Close()
		p.t.refusals.add(CauseCertificate, err, p.lockedAttrs()...)
		return nil, fmt.Errorf("%s: %w", raw.RemoteAddr(), err)
	}
	p.mu.Lock()
	number := p.t.numbers.Add(1)
	saw, ok := p.pair.Dial(number)
	if !ok {
		p.mu.Unlock()
		_ = raw.Close()
		return nil, nil
	}
	s := newSession(p, number, raw, conn, true)
	p.replace(s)
	p.mu.Unlock()
	err = bound(ctx, raw, func() error { return s.greet(addr, saw) })
	if err != nil {
		err = fmt.Errorf("%s: %w", raw.RemoteAddr(), err)
		p.end(s, err)
		if errors.Is(s.err, errReplaced) {
			return nil, nil
		}
		return s, err
	}
	return s, nil
}

// Reach makes one attempt to connect to another gateway, unless there is a connection. It returns
// nil when there is one, and fails when ctx ends, or if the host has not answered at all after first.
func (t *Transport) Reach(ctx context.Context, to To, first time.Duration) error {
	p := t.use(to.Name)
	if p == nil {
		return ErrClosed
	}
	defer t.leave(p)
	_, open, ready := p.current()
	if open {
		return nil
	}
	s, err := p.attempt(ctx, to.Addr, first)
	if err != nil {
		return err
	}
	if s != nil {
		t.serveReached(s)
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %s", ErrLinkDown, to.Name)
	}
}

// serveReached runs a session until it ends, or the transport does.
func (t *Transport) serveReached(s *session) {
	t.procs.Lock()
	defer t.procs.Unlock()
	if t.ctx.Err() != nil { // Close waits only for what has begun before it
		s.fail(ErrClosed)
		return
	}
	s.p.users++
	t.wg.Go(func() {
		defer t.leave(s.p)
		defer context.AfterFunc(t.ctx, func() { s.fail(ErrClosed) })()
		s.run()
	})
}

func (p *process) linkless() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link == nil
}

// attemptFailed notes why there is no connection.
func (p *process) attemptFailed(wanted context.Context, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wanted.Err() == nil && p.session == nil {
		p.failed(err)
	}
	return err
}

// greet exchanges hellos from the dialling end.
func (s *session) greet(addr string, saw uint64) error {
	p := s.p
	hello := p.t.hello(p.name)
	hello.Number, hello.Saw = s.number, saw
	if _, err := s.conn.Write(hello.Append(appendPreamble(nil))); err != nil {
		return err
	}
	if err := readAnswer(s.conn); err != nil {
		return err
	}
	theirs, err := readHello(s.conn)
	if err != nil {
		return err
	}
	if theirs.Name != p.name {
		return fmt.Errorf("%w: at %s is %q, not %q", errPreamble, addr, theirs.Name, p.name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.boot, s.addr = theirs.Boot, theirs.Addr
	if !p.open(s, theirs.Boot) {
		return errReplaced
	}
	return nil
}

// hello returns what this process says first to the one of that name.
func (t *Transport) hello(to string) wire.Hello {
	return wire.Hello{Name: t.config.Name, Boot: t.boot, Addr: t.addr.String(), To: to}
}

func readHello(conn net.Conn) (wire.Hello, error) {
	var b [wire.MaxHello]byte
	if _, err := io.ReadFull(conn, b[:2]); err != nil {
		return wire.Hello{}, err
	}
	n, err := wire.HelloSize(b[:2])
	if err != nil {
		return wire.Hello{}, err
	}
	if _, err := io.ReadFull(conn, b[:n]); err != nil {
		return wire.Hello{}, err
	}
	return wire.DecodeHello(b[:n])
}

// acceptLink serves an accepted connection until it is over.
func (t *Transport) acceptLink(raw *securedConn, conn net.Conn, h wire.Hello) {
	switch {
	case h.To != "" && h.To != t.config.Name:
		t.answerRefusal(raw, conn, statusName, CauseNode, fmt.Errorf("%q looks for %q", h.Name, h.To))
		return
	case h.To == "": // it asks who is here
		_, _ = conn.Write(t.hello("").Append(answerOf(statusOK))) // it is closed anyway
		_ = raw.Close()
		return
	case h.Name == t.config.Name:
		t.answerRefusal(raw, conn, statusName, CauseNode, errors.New("it has this gateway's name"))
		return
	}
	if err := peercert.OfConn(conn, h.Name); err != nil {
		t.answerRefusal(raw, conn, statusCertificate, CauseCertificate, err)
		return
	}
	p := t.use(h.Name)
	if p == nil {
		_ = raw.Close() // the transport is closed
		return
	}
	defer t.leave(p)
	p.mu.Lock()
	if t.ctx.Err() != nil { // Close ends only what it finds
		p.mu.Unlock()
		_ = raw.Close()
		return
	}
	if s := p.session; s != nil && p.twin(s, h) {
		p.mu.Unlock()
		t.answerRefusal(raw, conn, statusTwin, CauseNode, fmt.Errorf("%q at %s is connected, and another one is at %s", h.Name, s.addr, h.Addr))
		return
	}
	number := t.numbers.Add(1)
	if _, ok := p.pair.Offer(number, h); !ok {
		p.mu.Unlock()
		t.answerRefusal(raw, conn, statusDirection, CauseDirection, fmt.Errorf("%q: %w", h.Name, errCrossed))
		return
	}
	s := newSession(p, number, raw, conn, false)
	s.boot, s.addr = h.Boot, h.Addr
	p.replace(s)
	p.mu.Unlock()
	_, err := conn.Write(t.hello(h.Name).Append(answerOf(statusOK)))
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		p.end(s, err)
		return
	}
	s.run()
}

// twin reports whether a hello is from another process of the name than the one that s goes to, which lives.
// A gateway that is started again takes the place of the one before, whose connection its system
// has ended; where nobody has heard of that, only once the one before does not answer. The gateway that the view
// has takes the place of one at another address. It is called under mu.
func (p *process) twin(s *session, h wire.Hello) bool {
	if !s.open || s.boot == h.Boot || s.addr != h.Addr && p.link != nil && h.Addr == p.addr {
		return false
	}
	s.wire.Challenge()
	s.wakeWriter()
	return true
}

// sleep waits, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// want has the process dialled, and release ends that, after so long if nobody wants it again.
// They are called under mu.
func (p *process) want() {
	if p.wanted++; p.wanted == 1 && p.unwanted == nil {
		ctx, cancel := context.WithCancel(p.t.ctx)
		p.unwanted = cancel
		p.t.procs.Lock()
		defer p.t.procs.Unlock()
		if p.t.ctx.Err() != nil {
			return // Close waits for what has begun before it
		}
		p.users++
		p.t.wg.Go(func() {
			defer p.t.leave(p)
			p.dialLoop(ctx)
		})
	}
}

// release is described at want.
func (p *process) release(after time.Duration) {
	switch p.wanted--; {
	case p.wanted > 0:
	case after == 0:
		p.forgetIfUnwanted()
	default:
		p.lingers = time.Now().Add(after)
		if p.idle == nil {
			p.idle = time.AfterFunc(after, p.lapse) // harmless after Close
			return
		}
		p.idle.Reset(after)
	}
}

// lapse ends the time for which nobody has wanted the process, unless it has begun again.
func (p *process) lapse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !time.Now().Before(p.lingers) {
		p.forgetIfUnwanted()
	}
}

func (p *process) forgetIfUnwanted() {
	if p.wanted == 0 && p.unwanted != nil {
		p.unwanted()
		p.unwanted = nil
	}
}
