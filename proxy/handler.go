package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
)

// Handler is the data plane of one gateway. It is safe for concurrent use.
type Handler struct {
	cfg      Config
	chain    http.Handler
	routes   routes
	targets  []*target
	upgrades tracker
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler, or every error of cfg.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg.withDefaults()}
	h.buildRoutes()

	// chi carries the middleware. Its router is a trie, which finds the most
	// specific pattern and knows only registered methods; the first route that
	// matches, whatever the method, is found by routes.find.
	h.chain = chi.Chain(guard).HandlerFunc(h.dispatch)
	return h, nil
}

func (h *Handler) buildRoutes() {
	rw := &rewriter{trusted: h.cfg.TrustedProxies}
	std := &stdLog{logger: h.cfg.Logger}
	pools := make(map[string]*target, len(h.cfg.Pools))
	for _, p := range h.cfg.Pools {
		t := newTarget(p, h.cfg.Standing, rw, std)
		pools[p.Name] = t
		h.targets = append(h.targets, t)
	}
	for _, r := range h.cfg.Routes {
		t := pools[r.Pool]
		if r.Pool == "" {
			t = newTarget(Pool{Upstreams: r.Upstreams, Transport: r.Transport}, nil, rw, std)
			h.targets = append(h.targets, t)
		}
		h.routes = append(h.routes, newRoute(r, t))
	}
}

// Close closes the idle connections to the upstreams. Requests in flight are
// not touched; call it when the server has stopped.
func (h *Handler) Close() {
	for _, t := range h.targets {
		t.closeIdle()
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ex := newExchange(h, w, r)
	defer ex.cancel(nil) // ends last: finish asks whether the client has left
	defer ex.watchDeparture(r)()
	defer h.finish(ex, r)
	h.chain.ServeHTTP(ex, r.WithContext(&ex.ctx))
}

// guard refuses what must not be routed.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			writeProblem(w, r, problem{Status: http.StatusMethodNotAllowed, Detail: "this is a gateway, it opens no tunnels"})
		case hasDotSegment(r.URL.Path):
			writeProblem(w, r, problem{Status: http.StatusBadRequest, Detail: `the path contains "." or ".." segments`})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// dispatch finds the route and takes the request along it.
func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request) {
	ex := exchangeOf(r)
	if isTicketPath(r.URL.Path) {
		h.serveTickets(w, r)
		return
	}
	ex.route = h.routes.find(r)
	if ex.route == nil {
		writeProblem(w, r, problem{Status: http.StatusNotFound, Detail: "no route matches this request"})
		return
	}
	t := ex.route.target
	if t.Name == "" {
		ex.admitted = ex.arrived
		h.forward(ex, r)
		return
	}
	ex.rec.Pool = t.Name
	slot, err := h.admit(ex, r, t)
	ex.rec.Wait = time.Since(ex.arrived)
	switch {
	case err != nil:
		h.refuse(ex, r, t, err)
		return
	case slot == nil: // the client has got a ticket
		return
	}
	defer slot.Release()
	ex.admitted = ex.arrived.Add(ex.rec.Wait)
	ex.hold.slot, ex.hold.max, ex.hold.idle = slot, t.HoldMax, t.HoldIdle
	if o := h.cfg.Observer; o != nil {
		o.Admitted(t.Name, ex.rec.Wait)
	}
	h.forward(ex, r)
}

// admit gets the request a slot: that of the ticket it brings, or the next one
// in the pool's line, at most for the pool's or the client's time. A request
// that rather has a ticket gets that for an answer, and no slot.
func (h *Handler) admit(ex *exchange, r *http.Request, t *target) (Slot, error) {
	if ids, ok := r.Header[ticketHeader]; ok {
		return h.redeem(r, t, ids)
	}
	if t.Tickets && prefersAsync(r.Header) {
		return nil, h.handOut(ex, r, t)
	}
	ex.note = noteOf(r)
	ask := Ask{Pool: t.Name, Request: &ex.note}
	ask.Wait, ex.prefer = queueTimeout(t.QueueTimeout, r.Header)
	return h.cfg.Admitter.Acquire(r.Context(), ask)
}

// refuse answers a request that was not admitted.
func (h *Handler) refuse(ex *exchange, r *http.Request, t *target, err error) {
	var refusal *Refusal
	var ticket *ticketError
	switch {
	case r.Context().Err() != nil:
		ex.clientGone = true
		ex.rec.Outcome = OutcomeClientGone
		writeClientGone(ex, r)
	case errors.As(err, &refusal):
		ex.rec.Outcome = refusal.outcome()
		writeRefusal(ex, r, t.Name, refusal)
	case errors.As(err, &ticket):
		writeProblem(ex, r, problem{Status: ticket.status, Detail: ticket.detail, Pool: t.Name})
	default:
		h.cfg.Logger.Error("admission failed", slog.String("pool", t.Name), slog.Any("error", err))
		ex.rec.Outcome = OutcomeIsolated
		writeProblem(ex, r, problem{Status: http.StatusInternalServerError, Detail: "admission failed", Pool: t.Name})
	}
}

// forward sends the request to an upstream and copies the answer. When it
// returns, the upstream has nothing more to do with the request.
func (h *Handler) forward(ex *exchange, r *http.Request) {
	t := ex.route.target
	ex.rec.Outcome = OutcomeAdmitted
	ex.upstream = t.pick()
	ex.rec.Upstream = ex.upstream.name
	defer t.done(ex.upstream)
	if r.Body != nil && r.Body != http.NoBody {
		ex.body.ReadCloser, ex.body.hold, ex.body.trailer = r.Body, &ex.hold, r.Trailer
		r.Body = &ex.body
		// By default net/http reads an HTTP/1.1 request's body before it sends
		// the answer: an upstream's early "413" would wait, slot in hand, for a
		// slow upload. Not supported means HTTP/2, which needs no such thing.
		_ = http.NewResponseController(ex.ResponseWriter).EnableFullDuplex()
	}
	defer func() {
		if ex.backend != nil {
			// The reverse proxy leaves closing the upgraded connection to a
			// goroutine; the slot must not be free before it is closed.
			_ = ex.backend.Close()
		}
		if ex.hijacked {
			h.upgrades.add(-1)
		}
	}()
	if ex.hold.slot != nil {
		defer ex.watch()()
	}
	ex.upstream.proxy.ServeHTTP(ex, r)
}

// upstreamAnswered is every ReverseProxy's ModifyResponse.
func upstreamAnswered(res *http.Response) error {
	ex := exchangeOf(res.Request)
	if cause := ex.hold.broken(); cause != nil {
		return cause
	}
	ex.hold.move()
	ex.rec.FirstByte = time.Since(ex.admitted)
	ex.rec.UpstreamStatus = res.StatusCode
	ex.remaining = res.ContentLength
	if both, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		ex.backend = &upgraded{ReadWriteCloser: both, hold: &ex.hold}
		res.Body = ex.backend
	}
	return nil
}

// upstreamFailed is every ReverseProxy's ErrorHandler: no answer came.
func upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	ex := exchangeOf(r)
	var netErr net.Error
	var opErr *net.OpError
	ex.rec.DialFailed = errors.As(err, &opErr) && opErr.Op == "dial"
	p := problem{Status: http.StatusBadGateway, Detail: "the upstream could not be reached or broke off", Pool: ex.rec.Pool}
	if errors.Is(err, errLapsed) || ex.hold.check() != nil {
		ex.hold.breakOff(errLost) // unless it already was, for another reason
	}
	switch cause := ex.hold.broken(); {
	case cause != nil:
		ex.answerBroken(r, cause)
		return
	case r.Context().Err() != nil:
		ex.clientGone = true
		writeClientGone(ex, r)
		return
	case ex.body.failed.Load():
		p.Status, p.Detail = http.StatusBadRequest, "the request's body could not be read"
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded):
		ex.rec.Outcome = OutcomeUpstreamError
		p.Status, p.Detail = http.StatusGatewayTimeout, "the upstream did not answer in time"
	default:
		ex.rec.Outcome = OutcomeUpstreamError
	}
	ex.handler.cfg.Logger.Debug("upstream failed", slog.String("pool", ex.rec.Pool),
		slog.String("upstream", ex.rec.Upstream), slog.Any("error", err))
	writeProblem(w, r, p)
}

// writeClientGone ends a request whose client has left. Usually nobody reads
// it; a client that has only closed its sending side gets to know why.
func writeClientGone(ex *exchange, r *http.Request) {
	if r.ProtoMajor == 1 { // in HTTP/2 it would end the connection for other requests too
		ex.Header().Set("Connection", "close")
	}
	ex.WriteHeader(statusClientGone)
}

// finish sees every request out, also a panicking one.
func (h *Handler) finish(ex *exchange, r *http.Request) {
	v := recover()
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared as net/http does
		h.cfg.Logger.Error("panic while serving a request", slog.String("panic", fmt.Sprint(v)),
			slog.String("stack", string(debug.Stack())))
		if !ex.wrote.Load() {
			writeProblem(ex, r, problem{Status: http.StatusInternalServerError, Detail: "the gateway failed", Pool: ex.rec.Pool})
			v = nil
		}
	}
	if v != nil {
		ex.rec.Aborted = true
		if ex.rec.Outcome == OutcomeAdmitted && !ex.clientGone && ex.ctx.Err() == nil {
			ex.rec.Outcome = OutcomeUpstreamError
		}
	}
	if !ex.admitted.IsZero() {
		ex.rec.Hold = time.Since(ex.admitted)
	}
	if cause := ex.hold.broken(); cause != nil {
		ex.rec.Aborted = ex.rec.Aborted || ex.hijacked
		if ex.rec.Aborted || ex.rec.UpstreamStatus == 0 {
			h.logBroken(ex, r, cause)
		}
	}
	if ex.route != nil && h.cfg.Observer != nil {
		h.cfg.Observer.Done(&ex.rec)
	}
	if h.cfg.AccessLog {
		h.logAccess(ex, r)
	}
	if v != nil {
		// net/http ends the connection, so that the client does not take a
		// broken answer for a whole one, and says nothing.
		panic(http.ErrAbortHandler)
	}
}
