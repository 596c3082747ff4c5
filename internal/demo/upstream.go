package demo

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// HoldHeader is the response header with the time, in milliseconds, for which the upstream held the
// request.
const HoldHeader = "Demo-Hold-Ms"

// UpstreamConfig of an Upstream.
type UpstreamConfig struct {
	// Hold is how long requests are held, on average.
	Hold time.Duration
	// SCV of that time: its variance divided by its squared mean. 0 is constant, 1
	// exponential.
	SCV float64
	// Seed of the hold times.
	Seed uint64
	// K is the number of slots that Stats.Busy refers to; 0 if unknown. It
	// limits nothing.
	K int
	// BodyBytes is the size of an answer, default 3 ("ok\n").
	BodyBytes int
}

// Upstream is an http.Handler that holds each request for a while and counts its concurrent requests.
//
// GET /stats answers with its Stats as JSON, POST /reset begins a new window;
// neither is counted.
type Upstream struct {
	cfg   UpstreamConfig
	meter *meter
	body  []byte

	mu  sync.Mutex
	rng *rand.Rand
}

var _ http.Handler = (*Upstream)(nil)

// NewUpstream returns an Upstream.
func NewUpstream(cfg UpstreamConfig) (*Upstream, error) {
	switch {
	case cfg.SCV != 0 && cfg.SCV != 1:
		return nil, errors.New("demo: the squared coefficient of variation is 0 (constant) or 1 (exponential)")
	case cfg.Hold < 0 || cfg.K < 0 || cfg.BodyBytes < 0:
		return nil, errors.New("demo: an upstream's Hold, K and BodyBytes cannot be negative")
	}
	size := cmp.Or(cfg.BodyBytes, 3)
	return &Upstream{
		cfg:   cfg,
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0x6b67617465)),
		meter: newMeter(cfg.K, time.Now),
		body:  []byte(strings.Repeat("ok\n", size/3+1))[:size],
	}, nil
}

// hold returns how long the next request is held.
func (u *Upstream) hold() time.Duration {
	if u.cfg.SCV == 0 {
		return u.cfg.Hold
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Duration(u.rng.ExpFloat64() * float64(u.cfg.Hold))
}

// Stats returns the counts of the current window.
func (u *Upstream) Stats() Stats { return u.meter.stats() }

// Reset begins a new window.
func (u *Upstream) Reset() { u.meter.reset() }

// ServeHTTP implements http.Handler.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/stats" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(u.Stats()) // fails only if the asker is gone
	case r.URL.Path == "/reset" && r.Method == http.MethodPost:
		u.Reset()
		w.WriteHeader(http.StatusNoContent)
	default:
		u.serve(w, r)
	}
}

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request) {
	served := false
	u.meter.enter()
	entered := time.Now()
	select {
	case <-time.After(u.hold()):
		served = r.Context().Err() == nil
	case <-r.Context().Done():
	}
	first, last := u.body[:len(u.body)-1], u.body[len(u.body)-1:]
	if served {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(u.body)))
		w.Header().Set(HoldHeader, strconv.FormatFloat(float64(time.Since(entered))/float64(time.Millisecond), 'f', 3, 64))
		_, err := w.Write(first)
		served = err == nil
	}
	u.meter.leave(served) // with the last byte the gateway may admit the next request
	if served {
		_, _ = w.Write(last)
	}
}
