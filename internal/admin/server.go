package admin

import (
	"cmp"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Config of the admin address.
type Config struct {
	// Source is asked at each request. Required.
	Source Source
	// Lines lists the requests that wait or hold slots here. Peers asks the other gateways.
	// Required.
	Lines Lines
	Peers Peers
	// Metrics serves /metrics; nil: there are none.
	Metrics http.Handler
	// Control carries out changes; nil: changes are refused.
	Control Control
	// Tickets serves the ticket API; nil: there is none.
	Tickets Tickets
	// Client returns the key of a client that the holder of a ticket names; nil: none may be named.
	Client func(pool, name string) string
	// Tokens returns the accepted tokens. A change needs one of them, except over a guarded socket.
	// Tokens is called for each change. Nil or empty: no other machine can change anything.
	Tokens func() []string
	// Profiles serves /debug/pprof/, for this machine alone; nil: there are none. The caller
	// provides it because net/http/pprof adds itself to http.DefaultServeMux, which an
	// embedding program may serve.
	Profiles http.Handler
	// Log takes errors; nil discards.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Tokens == nil {
		c.Tokens = func() []string { return nil }
	}
	return c
}

// NewHandler returns the handler for the admin address.
func NewHandler(cfg Config) http.Handler {
	cfg = cfg.withDefaults()
	h := &handler{Config: cfg, fleet: newFleet(cfg)}
	r := chi.NewRouter()
	r.Use(secure, checkHost)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed)
	get := func(pattern string, f http.HandlerFunc) {
		r.Get(pattern, f)
		r.Head(pattern, f)
	}
	get("/", h.page)
	get("/healthz", healthz)
	get("/readyz", h.readyz)
	get("/api/v1/status", h.status)
	get("/api/v1/line", h.line)
	get("/api/v1/why", h.why)
	get("/api/v1/openapi.json", openapi)
	get("/debug/line", h.lineText)
	for name, f := range assets {
		get("/assets/"+name, f)
	}
	r.Get("/events", h.events)
	if cfg.Metrics != nil {
		get("/metrics", cfg.Metrics.ServeHTTP)
	}
	h.changes(r.With(noCrossOrigin(nil), authorize(cfg.Tokens)))
	if cfg.Profiles != nil {
		get("/debug/pprof/*", localOnly(cfg.Profiles.ServeHTTP))
	}
	return r
}

// changes adds the handlers that change something.
func (h *handler) changes(r chi.Router) {
	r.Handle("/api/v1/line/{id}", methods{http.MethodDelete: h.cancel})
	if h.Control != nil {
		post := func(pattern string, f http.HandlerFunc) { r.Handle(pattern, methods{http.MethodPost: f}) }
		post("/api/v1/pools/{name}", h.setPool)
		post("/api/v1/drain", h.drain)
		post("/api/v1/leave", h.leave)
		post("/api/v1/reload", h.reload)
		post("/api/v1/members/{name}/suspend", h.suspend)
	}
	if h.Tickets != nil {
		tickets := NewTicketHandler(TicketConfig{Tickets: h.Tickets, Client: h.Client, Log: h.Log})
		r.Handle(TicketsPath, tickets)
		r.Handle(TicketsPath+"/*", tickets)
	}
}
