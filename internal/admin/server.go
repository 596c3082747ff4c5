package admin

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// errConfig is wrapped by the errors of Config.Validate and TicketConfig.Validate.
var errConfig = errors.New("incomplete configuration")

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

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Source == nil || c.Lines == nil || c.Peers == nil {
		return fmt.Errorf("%w: Source, Lines and Peers are required", errConfig)
	}
	return nil
}

// NewHandler returns the handler for the admin address.
func NewHandler(cfg Config) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	h := &handler{source: cfg.Source, fleet: newFleet(cfg), tickets: cfg.Tickets, log: cfg.Log}
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
	if err := changes(r, cfg, h); err != nil {
		return nil, err
	}
	if cfg.Profiles != nil {
		get("/debug/pprof/*", localOnly(cfg.Profiles.ServeHTTP))
	}
	return r, nil
}

// changes adds the handlers that change something.
func changes(r chi.Router, cfg Config, h *handler) error {
	r = r.With(noCrossOrigin(nil), authorize(cfg.Tokens))
	r.Handle("/api/v1/line/{id}", methods{http.MethodDelete: h.cancel})
	if cfg.Control != nil {
		(&changer{control: cfg.Control, log: cfg.Log}).routes(r)
	}
	if cfg.Tickets != nil {
		h, err := NewTicketHandler(TicketConfig{Tickets: cfg.Tickets, Client: cfg.Client, Log: cfg.Log})
		if err != nil {
			return err
		}
		r.Handle(TicketsPath, h)
		r.Handle(TicketsPath+"/*", h)
	}
	return nil
}
