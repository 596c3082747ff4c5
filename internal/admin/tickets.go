package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/kgate/kgate/internal/admission"
)

// TicketsPath is where a ticket handler answers.
const TicketsPath = "/.kgate/tickets"

// Bounds of the ticket API.
const (
	maxPolls  = 10_000           // waiting requests, over all tickets
	maxWait   = time.Minute      // of one request; a longer wait is cut short
	endFor    = 5 * time.Second  // for ending a ticket whose holder never learns of it
	writeFor  = 10 * time.Second // for one answer or event
	maxIDSize = 64
)

// TicketConfig of a ticket handler.
type TicketConfig struct {
	// Tickets are asked at each request. Required.
	Tickets Tickets
	// Open reports whether tickets of a pool are given out here; nil: of all pools.
	Open func(pool string) bool
	// Asks returns the request that a client makes of a pool; nil: the pool does not distinguish
	// clients, and they hold their slots for as long as they like.
	Asks func(ctx context.Context, pool string) admission.Request
	// Client returns the key of a client that a request names; nil: none may be named, since Asks
	// knows who asks.
	Client func(pool, name string) string
	// Pages reports whether the web page of another origin that made a request may use tickets of
	// the pool, or of any pool if pool is empty; nil: no page may.
	Pages func(ctx context.Context, pool string) bool
	// MaxTTL bounds the time to live of tickets given out here; 0: [admission.MaxTTL].
	MaxTTL time.Duration
	// Log takes errors; nil discards.
	Log *slog.Logger
}

func (c TicketConfig) withDefaults() TicketConfig {
	if c.Open == nil {
		c.Open = func(string) bool { return true }
	}
	if c.Asks == nil {
		c.Asks = func(_ context.Context, pool string) admission.Request { return admission.Request{Pool: pool} }
	}
	if c.Pages == nil {
		c.Pages = func(context.Context, string) bool { return false }
	}
	c.MaxTTL = cmp.Or(c.MaxTTL, admission.MaxTTL)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// NewTicketHandler returns the ticket API, for requests under [TicketsPath]. The admin address has it
// for all pools. On the client address it needs no token: a ticket's id is the secret that its
// changes need.
func NewTicketHandler(cfg TicketConfig) http.Handler {
	h := &ticketHandler{TicketConfig: cfg.withDefaults()}
	r := chi.NewRouter()
	r.Use(noCrossOrigin(func(r *http.Request) bool { return h.Pages(r.Context(), "") }), noStore)
	r.NotFound(notFound)
	r.Handle(TicketsPath, methods{http.MethodPost: h.create})
	r.Handle(TicketsPath+"/", methods{http.MethodPost: h.create})
	r.Handle(TicketsPath+"/{id}", methods{http.MethodGet: h.test, http.MethodPut: h.renew, http.MethodDelete: h.end})
	r.Handle(TicketsPath+"/{id}/events", methods{http.MethodGet: h.events})
	// The handler may be mounted in another chi router. It must not take that router's
	// path for its own.
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), chi.RouteCtxKey, (*chi.Context)(nil))))
	})
}

type ticketHandler struct {
	TicketConfig
	polls atomic.Int64 // waiting requests
}

// duration is a time.Duration that is written as "30s" in JSON.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.50q is not a duration; write one such as \"30s\"", text)
	}
	*d = duration(v)
	return nil
}

func (h *ticketHandler) create(w http.ResponseWriter, r *http.Request) {
	q := struct {
		Pool   string   `json:"pool"`
		TTL    duration `json:"ttl"`
		Note   string   `json:"note"`
		Client string   `json:"client"`
	}{TTL: duration(defaultTTL)}
	if err := readJSON(w, r, &q); err != nil {
		problem(w, r, statusOf(err), err.Error())
		return
	}
	ttl := time.Duration(q.TTL)
	if err := h.check(q.Pool, ttl, q.Note); err != nil {
		h.fail(w, r, err)
		return
	}
	if !h.Open(q.Pool) {
		h.fail(w, r, fmt.Errorf("%w: no tickets of a pool %q are given out here", ErrUnknown, q.Pool))
		return
	}
	if crossOrigin.Check(r) != nil && !h.Pages(r.Context(), q.Pool) {
		refuseCrossOrigin(w, r)
		return
	}
	asks := h.Asks(r.Context(), q.Pool)
	if q.Client != "" {
		if h.Client == nil {
			h.fail(w, r, fmt.Errorf("%w: client is for the admin address; on this one you are the client", ErrInvalid))
			return
		}
		asks.Client = h.Client(q.Pool, q.Client)
	}
	t, err := h.Tickets.RequestTicket(r.Context(), asks, ttl, q.Note)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if r.Context().Err() != nil { // the client has left, or the gateway ends
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), endFor)
		defer cancel()
		_ = h.Tickets.EndTicket(ctx, t.ID) // on an error it expires
		h.fail(w, r, context.Cause(r.Context()))
		return
	}
	w.Header().Set("Location", TicketsPath+"/"+t.ID)
	writeJSON(w, http.StatusCreated, t)
}

// check returns why a gateway would refuse these values.
func (h *ticketHandler) check(pool string, ttl time.Duration, note string) error {
	switch {
	case pool == "":
		return fmt.Errorf("%w: pool is missing", ErrInvalid)
	case ttl < admission.MinTTL || ttl > admission.MaxTTL:
		return fmt.Errorf("%w: a ttl of %v is not between %v and %v; renew the ticket for as long as you need it",
			ErrInvalid, ttl, admission.MinTTL, admission.MaxTTL)
	case ttl > h.MaxTTL:
		return fmt.Errorf("%w: a ttl of %v is more than %v, the longest on this address; renew the ticket for as long as you need it", ErrInvalid, ttl, h.MaxTTL)
	case len(note) > admission.MaxNote:
		return fmt.Errorf("%w: a note of %d bytes is longer than %d", ErrInvalid, len(note), admission.MaxNote)
	case !utf8.ValidString(note) || strings.ContainsFunc(note, unicode.IsControl):
		return fmt.Errorf("%w: the note holds control characters", ErrInvalid)
	}
	return nil
}

func (h *ticketHandler) test(w http.ResponseWriter, r *http.Request) {
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			problem(w, r, http.StatusBadRequest, fmt.Sprintf("wait=%.50q is not a duration; write one such as wait=30s", text))
			return
		}
	}
	id, ok := h.ticketID(w, r)
	if !ok {
		return
	}
	if wait = min(wait, maxWait); wait > 0 {
		if !h.beginPoll(w, r) {
			return
		}
		defer h.polls.Add(-1)
		extend(w, wait+writeFor)
	}
	t, err := h.Tickets.TestTicket(r.Context(), id, false, wait)
	respond(w, r, t, err, h.Log)
}

func (h *ticketHandler) renew(w http.ResponseWriter, r *http.Request) {
	if id, ok := h.ticketID(w, r); ok {
		t, err := h.Tickets.RenewTicket(r.Context(), id)
		respond(w, r, t, err, h.Log)
	}
}

func (h *ticketHandler) end(w http.ResponseWriter, r *http.Request) {
	id, ok := h.ticketID(w, r)
	if !ok {
		return
	}
	if err := h.Tickets.EndTicket(r.Context(), id); err != nil {
		h.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// ticketID returns the id in the path, if it is well formed.
func (h *ticketHandler) ticketID(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := chi.URLParam(r, "id")
	if !isTicketID(id) {
		h.fail(w, r, admission.ErrUnknownTicket)
		return "", false
	}
	return id, true
}

// isTicketID reports whether s could name a ticket.
func isTicketID(s string) bool {
	odd := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return len(s) <= maxIDSize && !strings.ContainsFunc(s, odd)
}

// beginPoll counts a waiting request, and reports whether there is room; then the caller counts it
// down.
func (h *ticketHandler) beginPoll(w http.ResponseWriter, r *http.Request) bool {
	if h.polls.Add(1) > maxPolls {
		h.polls.Add(-1)
		h.fail(w, r, fmt.Errorf("%w: %d requests wait here for tickets", ErrTooMany, maxPolls))
		return false
	}
	return true
}

// fail answers with an error of Tickets.
func (h *ticketHandler) fail(w http.ResponseWriter, r *http.Request, err error) {
	failed(w, r, err, h.Log)
}

// respond answers with v, or with err.
func respond(w http.ResponseWriter, r *http.Request, v any, err error, log *slog.Logger) {
	if err != nil {
		failed(w, r, err, log)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

// events streams the states of a ticket as server-sent events: waiting, at each change of its place,
// granted, and at last gone. To watch a waiting ticket keeps it alive; a granted ticket has to be
// renewed.
func (h *ticketHandler) events(w http.ResponseWriter, r *http.Request) {
	id, ok := h.ticketID(w, r)
	if !ok || !h.beginPoll(w, r) {
		return
	}
	defer h.polls.Add(-1)
	t, err := h.Tickets.TestTicket(r.Context(), id, false, 0)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := eventStream{w: w, c: http.NewResponseController(w)}
	told := s.send(string(t.State()), t)
	for quiet := time.Duration(0); told == nil; {
		wait := eventEvery
		if t.Granted {
			wait = eventBeat
		}
		extend(w, wait+writeFor)
		next, err := h.Tickets.TestTicket(r.Context(), id, t.Granted, wait)
		var ended *admission.EndedError
		switch {
		case errors.As(err, &ended):
			_ = s.send("gone", map[string]admission.Ending{"reason": ended.How}) // it is the last word
			return
		case err != nil:
			return // the client comes back, here or at another gateway
		case next.Granted != t.Granted || next.Position != t.Position:
			told = s.send(string(next.State()), next)
			quiet = 0
		case quiet+wait >= eventBeat:
			told = s.comment()
			quiet = 0
		default:
			quiet += wait
		}
		t = next
	}
}
