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
	conn, kind, greeting, cause, err := t.greeted(raw)
	if !t.halfOpen.remove(waiting) {
		return // evicted or closed, and counted then
	}
	if err != nil {
		t.refuse(raw, cause, err)
		return
	}
	source := sourceOf(conn)
	if !t.open.Take(source) {
		t.answerRefusal(raw, conn, statusBusy, CauseStreams, fmt.Errorf("%s has %d streams already, or all have %d", source, mostStreamsEach, mostStreams))
		return
	}
	raw.onClose(func() { t.open.GiveBack(source) })
	if kind == streamLink {
		t.acceptLink(raw, conn, greeting)
		return
	}
	s := t.streams[kind]
	if !s.reserve() {
		status, cause, err := s.refusal()
		t.answerRefusal(raw, conn, status, cause, err)
		return
	}
	if _, err := conn.Write(answerOf(statusOK)); err != nil || raw.SetDeadline(time.Time{}) != nil {
		s.unreserve()
		_ = raw.Close()
		return
	}
	s.push(conn)
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

// greeted does the TLS handshake and reads the preamble and, for a link, the hello. On
// error it returns the cause, and tells the other end if that may be a kgate.
func (t *Transport) greeted(raw *securedConn) (conn net.Conn, kind StreamKind, h wire.Hello, cause Cause, err error) {
	conn, err = t.secure(t.ctx, raw, true)
	if err != nil {
		return nil, 0, h, handshakeCause(err), err
	}
	var b [preambleSize]byte
	if _, err = io.ReadFull(conn, b[:]); err != nil {
		return nil, 0, h, handshakeCause(err), err
	}
	kind, err = decodePreamble(b[:])
	switch {
	case errors.Is(err, errMagic):
		if b[0] == tlsRecordHandshake && t.tls.Load() == nil {
			return nil, 0, h, CauseTLS, err
		}
		return nil, 0, h, CauseMagic, err
	case errors.Is(err, errVersion):
		_, _ = conn.Write(answerOf(statusVersion)) // it is closed anyway
		return nil, 0, h, CauseVersion, err
	case err != nil:
		_, _ = conn.Write(answerOf(statusKind))
		return nil, 0, h, CauseKind, err
	case kind != streamLink:
		return conn, kind, h, "", nil
	}
	h, err = readHello(conn)
	switch {
	case errors.Is(err, wire.ErrFrame):
		_, _ = conn.Write(answerOf(statusHello)) // it is closed anyway
		return nil, 0, h, CauseProtocol, err
	case err != nil:
		return nil, 0, h, handshakeCause(err), err
	}
	return conn, kind, h, "", nil
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
// there are too many the oldest is closed: a peer takes milliseconds, so that is one that
// sends nothing.
type halfOpen struct {
	limit int

	mu     sync.Mutex
	conns  list.List
	closed bool
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
	if h.conns.Len() >= h.limit {
		oldest := h.conns.Front()
		evicted = h.take(oldest)
	}
	return h.conns.PushBack(conn), evicted
}

// remove reports whether the connection was still there.
func (h *halfOpen) remove(waiting *list.Element) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return waiting != nil && h.take(waiting) != nil
}

// take removes an element and marks it as gone.
func (h *halfOpen) take(e *list.Element) net.Conn {
	conn, _ := e.Value.(net.Conn)
	if conn != nil {
		h.conns.Remove(e)
		e.Value = nil
	}
	return conn
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
