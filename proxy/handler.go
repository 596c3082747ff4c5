package proxy

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/proxy/downstream"
)

// Handler is the data plane of one gateway. It is safe for concurrent use.
type Handler struct {
	current atomic.Pointer[snapshot]
	once    oncelog.Limit // of log lines
	places  atomic.Int64  // scripts of pages that wait
	heads   atomic.Int64  // bytes of requests that wait
	mu      sync.Mutex    // held while current is replaced
}

var _ downstream.Handler = (*Handler)(nil)

// New returns a Handler, or every error of cfg.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := new(Handler)
	h.current.Store(newSnapshot(cfg, &snapshot{once: &h.once, places: &h.places, heads: &h.heads, pseudonym: newPseudonym()}))
	return h, nil
}

// Reload makes cfg the configuration of later requests. A request that is in line or in
// flight keeps the one that it came under, and its place; only its upstream is chosen
// when it is admitted, among those that its pool has then. An upstream
// that stays keeps its connections. On an error nothing has changed.
func (h *Handler) Reload(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.current.Load()
	after := newSnapshot(cfg, before)
	h.current.Store(after)
	before.retire(after)
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
	// Healthy upstreams get requests; see Health. Since is when that changed last, zero if it
	// never has, and Why what the last check or request said, of one that is not healthy.
	Healthy bool
	Since   time.Time
	Why     error
	// InFlight is how many requests this gateway has sent there, Unanswered how many of
	// them still wait for the header of an answer, and Quiet how long no answer has come
	// while some do.
	InFlight, Unanswered int
	Quiet                time.Duration
}

// Upstreams returns the state of the pools' upstreams, in the order of the pools; those
// for TCP come last.
func (h *Handler) Upstreams() []UpstreamStatus {
	var all []UpstreamStatus
	s := h.current.Load()
	for _, p := range s.cfg.Pools {
		all = append(all, s.balancers[p.Name].status()...)
		if b := s.tcpPools[p.Name]; b != nil {
			all = append(all, b.status()...)
		}
	}
	return all
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = canonical(r)
	newExchange(h.current.Load(), w, r).serve(r)
}
