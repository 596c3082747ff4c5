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
)

// dialLoop dials until the link is closed, whenever there is no connection. The
// lower node dials at once. The higher one helps when that has not worked for a
// while: the lower one may be able to accept connections and not to open any.
func (l *link) dialLoop() {
	pauses := backoff{min: l.t.config.backoffMin, max: l.t.config.backoffMax}
	for l.ctx.Err() == nil {
		if s := l.current(); s != nil { // from the other end
			select {
			case <-s.done:
			case <-l.ctx.Done():
			}
			continue
		}
		if wait := l.dialDelay(); wait > 0 {
			if !sleep(l.ctx, wait) {
				return
			}
			continue
		}
		began := time.Now()
		err := l.connect()
		if err != nil && l.ctx.Err() == nil {
			l.failed(err)
		}
		if !sleep(l.ctx, pauses.after(time.Since(began), err)) {
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

// helpAfter is how many of the shortest pauses between attempts the higher node leaves the
// dialling to the lower one.
const helpAfter = 10

// dialDelay returns how much longer this end leaves the dialling to the other one.
func (l *link) dialDelay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	const unknown = time.Second // a view may bring an address
	switch {
	case l.addr == "":
		return unknown
	case l.dials():
		return 0
	default:
		return helpAfter*l.t.config.backoffMin - time.Since(l.ended)
	}
}

// connect makes one attempt, and returns when the connection is over. The error is nil if
// there was a connection.
func (l *link) connect() error {
	ctx, cancel := context.WithTimeout(l.ctx, l.t.config.dialTimeout)
	defer cancel()
	raw, conn, err := l.t.dial(ctx, l.peer().Addr)
	if err != nil {
		return err
	}
	if err := peercert.OfConn(conn, l.peer().Name); err != nil {
		_ = raw.Close()
		l.t.refusals.add(CauseCertificate, err, l.attrs()...)
		return fmt.Errorf("%s: %w", raw.RemoteAddr(), err)
	}
	s := newSession(l, raw, conn)
	switch err := l.enter(ctx, s, true); {
	case errors.Is(err, errLinked): // the other end was quicker
		_ = raw.Close()
		return nil
	case err != nil:
		_ = raw.Close()
		return err
	}
	defer l.leave(s)
	err = bound(ctx, raw, func() error { return l.handshake(conn) })
	if err != nil {
		_ = raw.Close()
		return fmt.Errorf("%s: %w", raw.RemoteAddr(), err)
	}
	s.run()
	return nil
}

// handshake opens the link from the dialling end.
func (l *link) handshake(conn net.Conn) error {
	mine := hello{from: l.self, to: l.node, received: l.received.Load()}
	if _, err := conn.Write(mine.append(appendPreamble(nil, streamLink))); err != nil {
		return err
	}
	if err := readAnswer(conn); err != nil {
		return err
	}
	var b [helloSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	h, err := decodeHello(b[:])
	if err != nil {
		return err
	}
	if h.from != l.node || h.to != l.self {
		return fmt.Errorf("%w: hello from node %d to node %d, want %d to %d", errPreamble, h.from, h.to, l.node, l.self)
	}
	if err := l.resume(h); err != nil {
		if errors.Is(err, errSequence) {
			l.t.refusals.add(CauseSequence, err, l.attrs()...)
		}
		return err
	}
	return nil
}

// acceptLink serves an accepted link until its connection is over.
func (t *Transport) acceptLink(raw *securedConn, conn net.Conn, h hello) {
	set := t.peers.Load()
	l := set.links[h.from]
	if l == nil || h.to != set.self {
		err := fmt.Errorf("link from node %d to node %d", h.from, h.to)
		t.answerRefusal(raw, conn, statusNode, CauseNode, err)
		return
	}
	if err := peercert.OfConn(conn, l.peer().Name); err != nil {
		t.answerRefusal(raw, conn, statusCertificate, CauseCertificate, err)
		return
	}
	s := newSession(l, raw, conn)
	// The lower node's connections take the place of others, the higher one's
	// do not: so two that cross do not end each other.
	ctx, cancel := context.WithTimeout(l.ctx, t.config.handshakeTimeout)
	defer cancel()
	switch err := l.enter(ctx, s, l.dials()); {
	case errors.Is(err, errLinked), errors.Is(err, errReplaced), errors.Is(err, errRunning):
		t.answerRefusal(raw, conn, statusDirection, CauseDirection, fmt.Errorf("link from node %d: %w", h.from, err))
		return
	case err != nil:
		t.answerRefusal(raw, conn, statusNode, CauseNode, err)
		return
	}
	defer l.leave(s)
	switch err := l.resume(h); {
	case errors.Is(err, errSequence):
		t.answerRefusal(raw, conn, statusSequence, CauseSequence, err)
		return
	case err != nil:
		t.answerRefusal(raw, conn, statusNode, CauseNode, err)
		return
	}
	mine := hello{from: l.self, to: l.node, received: l.received.Load()}
	if _, err := conn.Write(mine.append(answerOf(statusOK))); err != nil || raw.SetDeadline(time.Time{}) != nil {
		_ = raw.Close()
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
