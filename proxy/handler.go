package proxy

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// Handler is the data plane of one gateway. It is safe for concurrent use.
type Handler struct {
	current atomic.Pointer[snapshot]
	once    oncelog.Limit // of log lines
	places  atomic.Int64  // scripts of pages that wait
	heads   atomic.Int64  // bytes of requests that wait
	alarms  alarms
	mu      sync.Mutex // held while current is replaced
}

var (
	_ downstream.Handler        = (*Handler)(nil)
	_ downstream.RequestHandler = (*Handler)(nil)
)

// New returns a Handler, or every error of cfg.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := new(Handler)
	h.current.Store(newSnapshot(cfg, &snapshot{once: &h.once, places: &h.places, heads: &h.heads, alarms: &h.alarms, pseudonym: newPseudonym()}))
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
	// while some do. Answered is when the last came; zero: none has.
	InFlight, Unanswered int
	Quiet                time.Duration
	Answered             time.Time
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

// ClientKey is [Pool.ClientKey] of the pool with that name, as it is configured now.
func (h *Handler) ClientKey(pool, name string) string {
	p := h.current.Load().pool(pool)
	if p == nil {
		p = new(Pool)
	}
	return p.ClientKey(name)
}

// ServeHTTP implements http.Handler, for HTTP/2 and for servers of net/http's.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := adapt.FromHTTP(r)
	newExchange(r.Context(), h.current.Load(), w, in).serve(in)
}

// ServeRequest implements downstream.RequestHandler.
func (h *Handler) ServeRequest(ctx context.Context, w downstream.Answer, r *http1.Request) {
	newExchange(ctx, h.current.Load(), w, r).serve(r)
}

// Suspect has an upstream of a pool looked at, which another gateway could not reach.
func (h *Handler) Suspect(pool, upstream string) {
	s := h.current.Load()
	for _, b := range []*balancer{s.balancers[pool], s.tcpPools[pool]} {
		if b != nil {
			b.suspect(upstream)
		}
	}
}

// Agree tells which upstreams of a pool have a k of their own: the slots of the pool are for
// them, and what the configuration says of its upstreams does not count. None: it does.
func (h *Handler) Agree(pool string, upstreams []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.current.Load()
	isTCP := func(u string) bool { return strings.HasPrefix(u, schemeTCP+":") }
	for b, keep := range map[*balancer]bool{s.balancers[pool]: false, s.tcpPools[pool]: true} {
		if b != nil {
			b.agree(slices.DeleteFunc(slices.Clone(upstreams), func(u string) bool { return isTCP(u) != keep }))
		}
	}
}
