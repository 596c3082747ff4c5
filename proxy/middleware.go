package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// Middleware admits requests to the named pool before next, a handler of the program
// itself, serves them. A request keeps its slot until next has returned and the
// connection that it may have hijacked is closed. Its context ends, with the cause
// admission.ErrLost, when the slot is lost, and with admission.ErrHoldMax after the
// pool's HoldMax; then a hijacked connection is closed, too. Next sees no Kgate-* header of
// the client. Panics pass. What the pool says of upstreams, HoldIdle and MinUpload does not count here.
func (h *Handler) Middleware(pool string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := &guarded{ResponseWriter: w, visit: visit{snapshot: h.current.Load(), arrived: time.Now()}}
		g.came = adapt.FromHTTP(r)
		g.rec.Pool, g.info.Remote = pool, g.snapshot.clientAddr(r.Context(), nil, g.came)
		g.serve(r, next)
	})
}

// guarded is a request on its way through a handler of the program.
type guarded struct {
	http.ResponseWriter
	visit
	came     *http1.Request
	pool     *Pool
	given    *Held
	stopPoll func() // of PollDisconnect
	cancel   context.CancelCauseFunc
	// users of the slot: the handler until it has returned, and a hijacked
	// connection. The last one releases it.
	users    atomic.Int32
	hijacked atomic.Pointer[hijackedConn]
}

var (
	_ http.Flusher  = (*guarded)(nil)
	_ http.Hijacker = (*guarded)(nil)
	_ io.ReaderFrom = (*guarded)(nil)
)

// leaveFunc is a Watcher that cancels.
type leaveFunc context.CancelCauseFunc

func (cancel leaveFunc) ClientLeft() { cancel(nil) }

func (g *guarded) serve(r *http.Request, next http.Handler) {
	if g.pool = g.snapshot.pool(g.rec.Pool); g.pool == nil {
		g.snapshot.cfg.Logger.Error("a handler asks for a pool that the configuration does not have", slog.String("pool", g.rec.Pool))
		problems.Write(g, g.came.Fields.Values("Accept"), problem{Status: http.StatusInternalServerError, Detail: "this gateway has no such pool", Pool: g.rec.Pool})
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	g.stopPoll = downstream.PollDisconnect(r.Context(), g.came, leaveFunc(cancel))
	defer g.stopPoll()
	r = r.WithContext(ctx)
	slot, err := g.admit(r)
	g.waited()
	if err != nil {
		if !errors.Is(err, errAnswered) {
			g.refuse(r, err)
		}
		g.traceWait()
		g.done()
		return
	}
	g.users.Store(1)
	g.hold.slot, g.hold.max = slot, g.pool.HoldMax
	defer g.leave()
	g.enter(slot)
	g.watch(cancel)
	g.Header().Add("Server-Timing", g.timing())
	if g.isDraining() {
		g.Header().Set("Connection", "close")
	}
	g.rec.Aborted = true // unless it returns
	r = r.WithContext(WithHeld(ctx, g.given))
	RemoveForbidden(r)
	next.ServeHTTP(g, r)
	g.rec.Aborted = false
}

// admit waits for a slot.
func (g *guarded) admit(r *http.Request) (Slot, error) {
	if sc := trace.SpanContextFromContext(r.Context()); sc.IsValid() { // the program has begun a span for it
		g.spans = &spans{ctx: r.Context(), server: trace.SpanFromContext(r.Context())}
		g.rec.TraceID, g.rec.Sampled = sc.TraceID().String(), sc.IsSampled()
	}
	g.takeHead(g.came)
	defer g.giveHead()
	return g.visit.admit(r.Context(), g, g.came, g.pool)
}

// watch ends the request's context when the slot is lost or held for too long.
func (g *guarded) watch(cancel context.CancelCauseFunc) {
	g.given = &Held{Slot: g.hold.slot, Wait: g.rec.Wait}
	g.cancel = cancel
	g.hold.begin(g, g.snapshot.alarms)
}

// cut implements cutter.
func (g *guarded) cut(cause *abortCause) {
	if cause == errLost {
		g.cancel(admission.ErrLost)
		g.given.Lose(admission.ErrLost)
	} else {
		g.cancel(admission.ErrHoldMax)
		go g.given.End(admission.ErrHoldMax)
	}
	if c := g.hijacked.Load(); c != nil {
		_ = c.Conn.Close() // its owner finds out, and closes it
	}
}

// leave is called by each user of the slot when it is done.
func (g *guarded) leave() {
	if g.users.Add(-1) > 0 {
		return
	}
	g.hold.end()
	g.given.End(admission.ErrLost)
	g.hold.slot.Release()
	g.held()
	g.done()
}

// done tells the observer. The span is the program's.
func (g *guarded) done() {
	g.spans = nil
	g.visit.done()
}

// refuse answers a request that was not admitted.
func (g *guarded) refuse(r *http.Request, err error) {
	if r.Context().Err() == nil {
		if errors.Is(err, admission.Draining) {
			g.Header().Set("Connection", "close") // the next request is to go to another gateway
		}
		problems.Write(g, g.came.Fields.Values("Accept"), g.refused(g.Header(), err))
		return
	}
	g.rec.Outcome = admission.OutcomeClientGone
	if r.ProtoMajor == 1 {
		g.Header().Set("Connection", "close")
	}
	g.WriteHeader(statusClientGone)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (g *guarded) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (g *guarded) WriteHeader(status int) {
	if g.rec.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		g.rec.Status = status
	}
	g.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (g *guarded) Write(p []byte) (int, error) {
	g.wrote()
	n, err := g.ResponseWriter.Write(p)
	g.rec.Bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, by which net/http sends files.
func (g *guarded) ReadFrom(from io.Reader) (int64, error) {
	g.wrote()
	n, err := io.Copy(g.ResponseWriter, from)
	g.rec.Bytes += n
	return n, err
}

func (g *guarded) wrote() {
	if g.rec.Status == 0 {
		g.rec.Status = http.StatusOK
	}
}

// Flush implements http.Flusher.
func (g *guarded) Flush() {
	g.wrote()
	_ = http.NewResponseController(g.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker; it fails where the server's writer cannot do it, as
// with HTTP/2.
func (g *guarded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := &hijackedConn{Conn: conn, request: g}
	if g.hold.slot == nil { // only who was admitted gets here
		return c.Conn, brw, nil
	}
	g.stopPoll() // the connection's new owner may get its end and go on
	g.rec.Status = http.StatusSwitchingProtocols
	g.users.Add(1)
	g.hijacked.Store(c)
	if g.hold.aborted() != nil {
		_ = conn.Close()
	}
	return c, brw, nil
}

// hijackedConn keeps a slot until it is closed.
type hijackedConn struct {
	net.Conn
	request *guarded
	closed  atomic.Bool
}

// NetConn returns the connection as the server had it.
func (c *hijackedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side, if it can be closed alone.
func (c *hijackedConn) CloseWrite() error { return tcpstate.CloseWrite(c.Conn) }

// Close implements net.Conn. The connection is closed before its slot is given back.
func (c *hijackedConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.request.leave()
	}
	return err
}
