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
	raw, conn, err := p.t.dial(ctx, addr)
	if err != nil {
		return p.attemptFailed(wanted, err)
	}
	if err := peercert.OfConn(conn, p.name); err != nil {
		_ = raw.Close()
		p.t.refusals.add(CauseCertificate, err, p.lockedAttrs()...)
		return p.attemptFailed(wanted, fmt.Errorf("%s: %w", raw.RemoteAddr(), err))
	}
	p.mu.Lock()
	number := p.t.numbers.Add(1)
	saw, ok := p.pair.Dial(number)
	if !ok { // the other end was quicker
		p.mu.Unlock()
		_ = raw.Close()
		return nil
	}
	s := newSession(p, number, raw, conn, true)
	p.replace(s)
	p.mu.Unlock()
	err = bound(ctx, raw, func() error { return s.greet(addr, saw) })
	if err != nil {
		err = fmt.Errorf("%s: %w", raw.RemoteAddr(), err)
		p.end(s, err)
		if errors.Is(s.err, errReplaced) {
			return nil
		}
		return err
	}
	defer context.AfterFunc(wanted, func() { s.fail(errRemoved) })()
	s.run()
	return nil
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
	if _, err := s.conn.Write(hello.Append(appendPreamble(nil, streamLink))); err != nil {
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
	s.boot = theirs.Boot
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
	number := t.numbers.Add(1)
	if _, ok := p.pair.Offer(number, h); !ok {
		p.mu.Unlock()
		t.answerRefusal(raw, conn, statusDirection, CauseDirection, fmt.Errorf("%q: %w", h.Name, errCrossed))
		return
	}
	s := newSession(p, number, raw, conn, false)
	s.boot = h.Boot
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
	if p.session != nil {
		p.session.wire.Stranger = false
	}
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
	case after > 0:
		time.AfterFunc(after, func() { // harmless after Close
			p.mu.Lock()
			defer p.mu.Unlock()
			p.forgetIfUnwanted()
		})
	default:
		p.forgetIfUnwanted()
	}
}

func (p *process) forgetIfUnwanted() {
	if p.wanted == 0 && p.unwanted != nil {
		p.unwanted()
		p.unwanted = nil
	}
}
