package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is the data plane of one gateway. It is safe for concurrent use.
type Handler struct {
	current  atomic.Pointer[snapshot]
	upgrades tracker
	mu       sync.Mutex // held by who replaces current
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler, or every error of cfg.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := new(Handler)
	h.current.Store(newSnapshot(cfg, &snapshot{upgrades: &h.upgrades, pseudonym: newPseudonym()}))
	return h, nil
}

// Reload has requests that come from now on follow cfg. A request that is in line
// or in flight keeps what it came under, its place included; only its upstream
// is chosen when it is admitted, among those that its pool has then. An upstream
// that stays keeps its connections. On an error nothing has changed.
func (h *Handler) Reload(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.current.Load()
	now := newSnapshot(cfg, before)
	h.current.Store(now)
	before.retire(now)
	return nil
}

// Close ends the upstreams' checks and closes their idle connections. Requests in
// flight are not touched; call it when the server has stopped.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current.Load().retire(nil)
}

// UpstreamStatus is what a gateway knows of an upstream.
type UpstreamStatus struct {
	Pool, URL string
	// Healthy upstreams get requests; see Health.
	Healthy bool
	// InFlight is how many requests this gateway has sent there.
	InFlight int
}

// Upstreams returns the state of the pools' upstreams, in the order of the
// configuration.
func (h *Handler) Upstreams() []UpstreamStatus {
	var all []UpstreamStatus
	for _, t := range h.current.Load().targets {
		if t.Name != "" {
			all = append(all, t.status()...)
		}
	}
	return all
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.current.Load().serve(w, r) }

// serve sees a request through.
func (s *snapshot) serve(w http.ResponseWriter, r *http.Request) {
	if _, secure := connOf(r.Context()); secure != nil {
		r.TLS = secure.state
	}
	ex := newExchange(s, w, r)
	defer ex.ctx.cancel(nil) // ends last: finish asks whether the client has left
	ex.unboundWrites()
	ex.boundNothing(r)
	defer ex.watchDisconnect(r)()
	defer ex.boundEnd()
	defer s.finish(ex, r)
	r = r.WithContext(&ex.ctx)
	if !s.guard(ex, r) {
		s.dispatch(ex, r)
	}
}

// dispatch finds the route and takes the request along it.
func (s *snapshot) dispatch(ex *exchange, r *http.Request) {
	if isTicketPath(r.URL.Path) {
		s.serveTickets(ex, r)
		return
	}
	ex.route = s.routes.find(r)
	if ex.route == nil {
		s.noRoute(ex, r)
		return
	}
	t := ex.route.target
	ex.rec.Pool = t.Name
	ex.startTrace(r)
	if t.Name == "" {
		ex.admitted = ex.arrived
		ex.boundStalls(r)
		ex.unread = unreadBody{}
		s.forward(ex, r)
		return
	}
	if t.Health.checks() && t.isDown() {
		s.refuse(ex, r, t, t.downRefusal())
		return
	}
	slot, err := s.admit(ex, r, t)
	ex.rec.Wait = time.Since(ex.arrived)
	switch {
	case errors.Is(err, errTicketGiven):
		return
	case err != nil:
		s.refuse(ex, r, t, err)
		ex.traceQueue(false)
		return
	}
	defer slot.Release()
	ex.rec.Entry = slot.Entry()
	ex.traceQueue(true)
	ex.admitted = ex.arrived.Add(ex.rec.Wait)
	ex.hold.slot, ex.hold.max, ex.hold.idle = slot, t.HoldMax, t.HoldIdle
	if o := s.cfg.Observer; o != nil {
		o.Admitted(&ex.rec)
	}
	ex.unread = unreadBody{}
	s.forward(ex, r)
}

// admit gets the request a slot: that of the ticket it brings, or the next one
// in the pool's line, at most for the pool's or the client's time.
func (s *snapshot) admit(ex *exchange, r *http.Request, t *target) (Slot, error) {
	if ids, ok := r.Header[ticketHeader]; ok {
		return s.redeem(r, t, ids)
	}
	if t.Tickets && prefersTicket(r.Header) {
		return s.admitOrTicket(ex, r, t)
	}
	ex.note = Note{Method: r.Method, Path: r.URL.Path, Remote: clientAddr(r, s.cfg.TrustedProxies), Trace: ex.rec.TraceID}
	ask := Ask{Pool: t.Name, Client: s.client(r, t), Span: ex.spanBytes(), Request: &ex.note}
	ask.Wait, ex.prefer = queueTimeout(t.QueueTimeout, r.Header)
	return s.cfg.Admitter.Acquire(r.Context(), ask)
}

// refuse answers a request that was not admitted.
func (s *snapshot) refuse(ex *exchange, r *http.Request, t *target, err error) {
	var refusal *Refusal
	var ticket *ticketError
	switch {
	case r.Context().Err() != nil:
		ex.clientGone = true
		ex.rec.Outcome = OutcomeClientGone
		writeClientGone(ex, r)
	case errors.As(err, &refusal):
		ex.rec.Outcome, ex.rec.Entry.Position = refusal.outcome(), refusal.Position
		writeRefusal(ex, r, t.Name, refusal)
	case errors.As(err, &ticket):
		writeProblem(ex, r, problem{Status: ticket.status, Detail: ticket.detail, Pool: t.Name})
	default:
		s.cfg.Logger.Error("admission failed", slog.String("pool", t.Name), ex.traceAttr(), slog.Any("error", err))
		ex.rec.Outcome = OutcomeIsolated
		writeProblem(ex, r, problem{Status: http.StatusInternalServerError, Detail: "admission failed", Pool: t.Name})
	}
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
func (s *snapshot) finish(ex *exchange, r *http.Request) {
	v := recover()
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared as net/http does
		s.cfg.Logger.Error("panic while serving a request", slog.String("panic", fmt.Sprint(v)),
			ex.traceAttr(), slog.String("stack", string(debug.Stack())))
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
	if cause := ex.hold.aborted(); cause != nil {
		ex.rec.Aborted = ex.rec.Aborted || ex.hijacked
		if ex.rec.Aborted || ex.rec.UpstreamStatus == 0 {
			s.logAborted(ex, r, cause)
		}
	}
	ex.cleanTrailers()
	ex.rec.RequestBytes = ex.body.read.Load()
	if ex.route != nil && s.cfg.Observer != nil {
		s.cfg.Observer.Done(&ex.rec)
	}
	ex.endTrace()
	s.logAccess(ex, r)
	if v != nil {
		// net/http ends the connection, so that the client does not take a
		// broken answer for a whole one, and says nothing.
		panic(http.ErrAbortHandler)
	}
}
