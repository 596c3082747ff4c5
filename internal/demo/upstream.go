package demo

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// HoldHeader is the response header with the time, in milliseconds, for which the upstream held the
// request.
const HoldHeader = "Demo-Hold-Ms"

// UpstreamConfig of an Upstream.
type UpstreamConfig struct {
	// Hold is how long requests are held.
	Hold Distribution
	// Seed of the hold times.
	Seed uint64
	// K is the number of slots that Stats.Busy refers to; 0 if unknown. It
	// limits nothing.
	K int
	// BodyBytes is the size of an answer, default 3 ("ok\n").
	BodyBytes int
	// Chunks greater than 1 sends the header at once and the body in Chunks parts, spread evenly
	// over the hold time, as a slow download does.
	Chunks int
}

func (c UpstreamConfig) withDefaults() UpstreamConfig {
	c.BodyBytes = cmp.Or(c.BodyBytes, len(okBody))
	c.Chunks = max(c.Chunks, 1)
	return c
}

// Validate reports what is wrong with c, joined.
func (c UpstreamConfig) Validate() error {
	errs := []error{c.Hold.Validate()}
	if c.K < 0 || c.BodyBytes < 0 || c.Chunks < 0 {
		errs = append(errs, errors.New("demo: an upstream's K, BodyBytes and Chunks cannot be negative"))
	}
	return errors.Join(errs...)
}

// Upstream is an http.Handler that holds each request for a while and counts its concurrent requests.
//
// GET /stats answers with its Stats as JSON, POST /reset begins a new window;
// neither is counted.
type Upstream struct {
	cfg   UpstreamConfig
	hold  *sampler
	meter *meter
	body  []byte
}

var _ http.Handler = (*Upstream)(nil)

const okBody = "ok\n"

// NewUpstream returns an Upstream.
func NewUpstream(cfg UpstreamConfig) (*Upstream, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	u := &Upstream{
		cfg:   cfg,
		hold:  newSampler(cfg.Hold, cfg.Seed),
		meter: newMeter(cfg.K, time.Now),
		body:  make([]byte, cfg.BodyBytes),
	}
	for i := range u.body {
		u.body[i] = okBody[i%len(okBody)]
	}
	return u, nil
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
	u.meter.enter()
	entered := time.Now()
	served := false
	defer func() {
		if !served {
			u.meter.leave(false)
		}
	}()

	hold := u.hold.next()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(u.body)))
	rest := u.body
	if u.cfg.Chunks > 1 {
		w.Header().Set(HoldHeader, formatMilliseconds(hold))
	}
	for left := u.cfg.Chunks; left > 1; left-- {
		part := rest[:len(rest)/left]
		rest = rest[len(part):]
		sent := u.cfg.Chunks - left + 1
		until := entered.Add(hold / time.Duration(u.cfg.Chunks) * time.Duration(sent))
		if !send(w, part) || !sleepUntil(r, until) {
			return
		}
	}
	if !sleepUntil(r, entered.Add(hold)) {
		return
	}
	if u.cfg.Chunks == 1 {
		w.Header().Set(HoldHeader, formatMilliseconds(time.Since(entered)))
	}
	if len(rest) > 1 {
		if _, err := w.Write(rest[:len(rest)-1]); err != nil {
			return
		}
		rest = rest[len(rest)-1:]
	}
	// With the last byte the gateway may admit the next request.
	u.meter.leave(true)
	served = true
	_, _ = w.Write(rest)
}

func send(w http.ResponseWriter, part []byte) bool {
	if _, err := w.Write(part); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

// sleepUntil reports whether the client was still there at the end.
func sleepUntil(r *http.Request, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return r.Context().Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

func formatMilliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
}
