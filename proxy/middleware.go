package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// Held is the slot of a request that Middleware has admitted. It is for the next
// handler to look at; Middleware releases it.
type Held struct {
	Slot
	// Lost is closed when the slot may be used no longer.
	Lost <-chan struct{}
	// Wait is how long the request waited for it.
	Wait time.Duration
}

type heldKey struct{}

// HeldIn returns the slot that a request's context was given, nil if there is none.
func HeldIn(ctx context.Context) *Held {
	held, _ := ctx.Value(heldKey{}).(*Held)
	return held
}

// WithHeld returns a context in which HeldIn finds held.
func WithHeld(ctx context.Context, held *Held) context.Context {
	return context.WithValue(ctx, heldKey{}, held)
}

// Middleware admits requests to the named pool before next, a handler of the program
// itself, serves them. A request keeps its slot until next has returned and the
// connection that it may have hijacked is closed. Its context ends, with the cause
// admission.ErrLost, when the slot is lost, and with admission.ErrHoldMax after the
// pool's HoldMax; then a hijacked connection is closed, too. Panics pass. What the pool
// says of upstreams, HoldIdle and MinUpload does not count here.
func (h *Handler) Middleware(pool string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{ResponseWriter: w, snapshot: h.current.Load(), arrived: time.Now()}
		v.rec.Pool = pool
		v.serve(r, next)
	})
}

// visit is a request on its way through a handler of the program.
type visit struct {
	http.ResponseWriter
	snapshot *snapshot
	pool     *Pool
	slot     Slot
	hold     hold
	lost     chan struct{}
	rec      Record
	info     admission.RequestInfo

	arrived, admitted time.Time
	// users of the slot: the handler until it has returned, and a hijacked
	// connection. The last one releases it.
	users    atomic.Int32
	hijacked atomic.Pointer[hijackedConn]
}

var (
	_ http.Flusher  = (*visit)(nil)
	_ http.Hijacker = (*visit)(nil)
	_ io.ReaderFrom = (*visit)(nil)
)

func (v *visit) serve(r *http.Request, next http.Handler) {
	if v.pool = v.snapshot.pool(v.rec.Pool); v.pool == nil {
		v.snapshot.cfg.Logger.Error("a handler asks for a pool that the configuration does not have", slog.String("pool", v.rec.Pool))
		problems.Write(v, r, problem{Status: http.StatusInternalServerError, Detail: "this gateway has no such pool", Pool: v.rec.Pool})
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	r = r.WithContext(ctx)
	if err := v.admit(r, cancel); err != nil {
		if !errors.Is(err, errAnswered) {
			v.refuse(r, err)
		}
		v.trace(ctx, false)
		v.done()
		return
	}
	v.users.Store(1)
	defer v.leave()
	v.trace(ctx, true)
	if o := v.snapshot.cfg.Observer; o != nil {
		o.Admitted(&v.rec)
	}
	v.watch(cancel)
	v.Header().Add("Server-Timing", `kgate;desc="queue";dur=`+strconv.FormatFloat(milliseconds(v.rec.Wait), 'f', 3, 64))
	v.rec.Outcome, v.rec.Aborted = admission.OutcomeAdmitted, true // unless it returns
	next.ServeHTTP(v, r.WithContext(WithHeld(ctx, &Held{Slot: v.slot, Lost: v.lost, Wait: v.rec.Wait})))
	v.rec.Aborted = false
}

// admit waits for a slot. Cancel ends the request's context.
func (v *visit) admit(r *http.Request, cancel context.CancelCauseFunc) (err error) {
	defer pollDisconnect(r, func() { cancel(nil) })()
	v.slot, err = v.acquire(r)
	v.admitted = time.Now()
	v.rec.Wait = v.admitted.Sub(v.arrived)
	if err == nil {
		v.rec.Grant = v.slot.GrantInfo()
	}
	return err
}

func (v *visit) acquire(r *http.Request) (Slot, error) {
	if ids, ok := r.Header[ticketHeader]; ok {
		return v.snapshot.redeem(r.Context(), v.pool.Name, ids)
	}
	return admitBrowser(r.Context(), v.snapshot, v.pool, v, r, func(limit time.Duration) (Slot, error) { return v.wait(r, limit) })
}

// wait waits in the pool's line, no longer than limit.
func (v *visit) wait(r *http.Request, limit time.Duration) (Slot, error) {
	s := v.snapshot
	v.info = admission.RequestInfo{Method: r.Method, Path: r.URL.Path, Remote: s.clientAddr(r)}
	req := admission.Request{Pool: v.pool.Name, Info: &v.info}
	if sc := trace.SpanContextFromContext(r.Context()); sc.IsValid() {
		v.rec.TraceID, v.rec.Sampled = sc.TraceID().String(), sc.IsSampled()
		v.info.Trace = v.rec.TraceID
		if v.rec.Sampled {
			req.Span = spanBytes(sc)
		}
	}
	if v.pool.TellClients {
		req.Client = s.clientKey(r, v.pool)
	}
	req.Wait, _ = queueTimeout(limit, r.Header)
	return s.cfg.Admitter.Acquire(r.Context(), req)
}

// trace records the wait below the span that the program has begun for the request.
func (v *visit) trace(ctx context.Context, admitted bool) {
	if tracer := v.snapshot.cfg.Tracer; tracer != nil && v.rec.Sampled {
		v.rec.traceWait(ctx, tracer, v.arrived, admitted)
	}
}

// watch ends the request's context when the slot is lost or held for too long.
func (v *visit) watch(cancel context.CancelCauseFunc) {
	v.lost = make(chan struct{})
	v.hold.slot, v.hold.max = v.slot, v.pool.HoldMax
	v.hold.begin(func(cause *abortCause) {
		why := admission.ErrHoldMax
		if cause == errLost {
			why = admission.ErrLost
			close(v.lost)
		}
		cancel(why)
		if c := v.hijacked.Load(); c != nil {
			_ = c.Conn.Close() // its owner finds out, and closes it
		}
	})
}

// leave is called by each user of the slot when it is done.
func (v *visit) leave() {
	if v.users.Add(-1) > 0 {
		return
	}
	v.hold.end()
	v.slot.Release()
	v.rec.Hold = time.Since(v.admitted)
	v.done()
}

func (v *visit) done() {
	if o := v.snapshot.cfg.Observer; o != nil {
		o.Done(&v.rec)
	}
}

// refuse answers a request that was not admitted.
func (v *visit) refuse(r *http.Request, err error) {
	if errors.Is(err, admission.ErrUnknownPool) || errors.Is(err, admission.ErrElsewhere) {
		err = &admission.Refusal{Reason: admission.Isolated} // it passes, as in exchange.refuse
	}
	var refusal *admission.Refusal
	var ticket *ticketError
	switch {
	case r.Context().Err() != nil:
		v.rec.Outcome = admission.OutcomeClientGone
		if r.ProtoMajor == 1 {
			v.Header().Set("Connection", "close")
		}
		v.WriteHeader(statusClientGone)
	case errors.As(err, &refusal):
		v.rec.Outcome, v.rec.Grant.Position = refusal.Reason.Outcome(), refusal.Position
		problems.Write(v, r, newRefusal(v.Header(), v.rec.Pool, refusal, refusal.Reason.Detail()))
	case errors.As(err, &ticket):
		problems.Write(v, r, problem{Status: ticket.status, Detail: ticket.detail, Pool: v.rec.Pool})
	default:
		v.snapshot.cfg.Logger.Error("admission failed", slog.String("pool", v.rec.Pool), slog.Any("error", err))
		v.rec.Outcome = admission.Isolated.Outcome()
		problems.Write(v, r, problem{Status: http.StatusInternalServerError, Detail: "admission failed", Pool: v.rec.Pool})
	}
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (v *visit) WriteHeader(status int) {
	if v.rec.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		v.rec.Status = status
	}
	v.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (v *visit) Write(p []byte) (int, error) {
	v.wrote()
	n, err := v.ResponseWriter.Write(p)
	v.rec.Bytes += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, by which net/http sends files.
func (v *visit) ReadFrom(from io.Reader) (int64, error) {
	v.wrote()
	n, err := io.Copy(v.ResponseWriter, from)
	v.rec.Bytes += n
	return n, err
}

func (v *visit) wrote() {
	if v.rec.Status == 0 {
		v.rec.Status = http.StatusOK
	}
}

// Flush implements http.Flusher.
func (v *visit) Flush() {
	v.wrote()
	_ = http.NewResponseController(v.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker; it fails where the server's writer cannot do it, as
// with HTTP/2.
func (v *visit) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(v.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := &hijackedConn{Conn: conn, visit: v}
	if v.slot == nil { // only who was admitted gets here
		return c.Conn, brw, nil
	}
	v.rec.Status = http.StatusSwitchingProtocols
	v.users.Add(1)
	v.hijacked.Store(c)
	if v.hold.aborted() != nil {
		_ = conn.Close()
	}
	return c, brw, nil
}

// hijackedConn keeps a slot until it is closed.
type hijackedConn struct {
	net.Conn
	visit  *visit
	closed atomic.Bool
}

// NetConn returns the connection as the server had it.
func (c *hijackedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side, if it can be closed alone.
func (c *hijackedConn) CloseWrite() error { return tcpstate.CloseWrite(c.Conn) }

// Close implements net.Conn. The connection is closed before its slot is given back.
func (c *hijackedConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.visit.leave()
	}
	return err
}
