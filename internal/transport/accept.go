package transport

import (
	"container/list"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/inbound"
	"github.com/kgate/kgate/internal/peercert"
	"github.com/kgate/kgate/internal/transport/wire"
)

// accept takes connections until the listener is closed.
func (t *Transport) accept() {
	var pause time.Duration
	for {
		conn, err := t.listener.Accept()
		switch {
		case err == nil:
			pause = 0
			raw := t.secured.below(conn)
			// Here and not in serve: the oldest must be the first accepted.
			waiting, evicted := t.halfOpen.add(raw)
			if evicted != nil {
				t.refuse(evicted, CauseHalfOpen, errors.New("another one was opened"))
			}
			t.wg.Go(func() { t.serve(raw, waiting) })
			continue
		case t.ctx.Err() != nil:
			return
		}
		// Most likely there are no more file descriptors: that passes.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		if suppressed, ok := t.refusals.once.Allow("accept"); ok {
			t.config.Logger.LogAttrs(t.ctx, slog.LevelError, "cannot accept connections", slog.Any("error", err), slog.Int("suppressed", suppressed))
		}
		if !sleep(t.ctx, pause) {
			return
		}
	}
}

// serve finds out what a new connection is for, and hands it on.
func (t *Transport) serve(raw *securedConn, waiting *list.Element) {
	if err := raw.SetDeadline(time.Now().Add(t.config.handshakeTimeout)); err != nil {
		t.halfOpen.remove(waiting)
		_ = raw.Close()
		return
	}
	conn, greeting, cause, err := t.greeted(raw)
	if !t.halfOpen.remove(waiting) {
		return // evicted or closed, and counted then
	}
	if err != nil {
		t.refuse(raw, cause, err)
		return
	}
	source := sourceOf(conn)
	if !t.open.Take(source) {
		t.answerRefusal(raw, conn, statusBusy, CauseStreams, fmt.Errorf("%s has %d connections already, or all have %d", source, mostStreamsEach, mostStreams))
		return
	}
	raw.onClose(func() { t.open.GiveBack(source) })
	t.acceptLink(raw, conn, greeting)
}

// mostStreams bounds the connections that others have open here, and mostStreamsEach those of
// one gateway; without TLS, of one address. A gateway needs about ten.
const (
	mostStreams     = 2048
	mostStreamsEach = 256
)

// sourceOf names the other end by its certificate, or by its address.
func sourceOf(conn net.Conn) string {
	if secure, ok := conn.(*tls.Conn); ok {
		if certs := secure.ConnectionState().PeerCertificates; len(certs) > 0 {
			return "certificate " + strings.Join(peercert.Names(certs[0]), ", ")
		}
	}
	return inbound.Host(conn)
}

// greeted does the TLS handshake and reads the preamble and the hello. On error it returns the cause, and tells the other end if that may be a kgate.
func (t *Transport) greeted(raw *securedConn) (conn net.Conn, h wire.Hello, cause Cause, err error) {
	conn, err = t.secure(t.ctx, raw, true)
	if err != nil {
		return nil, h, handshakeCause(err), err
	}
	var b [preambleSize]byte
	if _, err = io.ReadFull(conn, b[:]); err != nil {
		return nil, h, handshakeCause(err), err
	}
	err = checkPreamble(b[:])
	switch {
	case errors.Is(err, errMagic):
		if b[0] == tlsRecordHandshake && t.tls.Load() == nil {
			return nil, h, CauseTLS, err
		}
		return nil, h, CauseMagic, err
	case errors.Is(err, errVersion):
		_, _ = conn.Write(answerOf(statusVersion)) // it is closed anyway
		return nil, h, CauseVersion, err
	case err != nil:
		_, _ = conn.Write(answerOf(statusKind))
		return nil, h, CauseKind, err
	}
	h, err = readHello(conn)
	switch {
	case errors.Is(err, wire.ErrFrame):
		_, _ = conn.Write(answerOf(statusHello)) // it is closed anyway
		return nil, h, CauseProtocol, err
	case err != nil:
		return nil, h, handshakeCause(err), err
	}
	return conn, h, "", nil
}

// tlsRecordHandshake is the first byte of a TLS connection.
const tlsRecordHandshake = 0x16

// handshakeCause says what an error of a connection's first moments means.
func handshakeCause(err error) Cause {
	var (
		record tls.RecordHeaderError
		cert   *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return CauseSlow
	case errors.As(err, &record):
		return CausePlaintext
	case errors.As(err, &cert):
		return CauseCertificate
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isReset(err):
		return CauseIncomplete
	default:
		return CauseHandshake
	}
}

// halfOpen holds accepted connections whose preamble is not complete, oldest first. If
// there are too many, the oldest of the address with most of them is closed: a peer far away takes
// several round trips, in which one address could open more than there is room for.
type halfOpen struct {
	limit int

	mu     sync.Mutex
	conns  list.List
	closed bool
}

type newcomer struct {
	conn net.Conn
	host string
}

func newHalfOpen(limit int) *halfOpen { return &halfOpen{limit: limit} }

// add returns what remove needs, and the connection that has to go, if any.
func (h *halfOpen) add(conn net.Conn) (waiting *list.Element, evicted net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		_ = conn.Close()
		return nil, nil
	}
	waiting = h.conns.PushBack(newcomer{conn, inbound.Host(conn)})
	if h.conns.Len() > h.limit {
		evicted = h.take(h.first())
	}
	return waiting, evicted
}

// first returns the connection that has to go first.
func (h *halfOpen) first() *list.Element {
	each := make(map[string]int)
	most := 0
	for e := h.conns.Front(); e != nil; e = e.Next() {
		host := e.Value.(newcomer).host
		each[host]++
		most = max(most, each[host])
	}
	e := h.conns.Front()
	for each[e.Value.(newcomer).host] < most {
		e = e.Next()
	}
	return e
}

// remove reports whether the connection was still there.
func (h *halfOpen) remove(waiting *list.Element) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return waiting != nil && h.take(waiting) != nil
}

// take removes an element and marks it as gone.
func (h *halfOpen) take(e *list.Element) net.Conn {
	c, in := e.Value.(newcomer)
	if !in {
		return nil
	}
	h.conns.Remove(e)
	e.Value = nil
	return c.conn
}

// close closes all connections, and those that come later.
func (h *halfOpen) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for e := h.conns.Front(); e != nil; e = h.conns.Front() {
		_ = h.take(e).Close()
	}
}
