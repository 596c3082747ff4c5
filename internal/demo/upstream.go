package demo

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// HoldHeader is the response header with the time, in milliseconds, for which the upstream held the
// request.
const HoldHeader = "Demo-Hold-Ms"

// Stats are an upstream's counts.
type Stats struct {
	// InFlight requests now, and the most that were ever in flight at once.
	InFlight int `json:"in_flight"`
	Max      int `json:"max"`
	// Served counts requests answered in full, Aborted requests whose client left before.
	Served  int64 `json:"served"`
	Aborted int64 `json:"aborted"`
	// Held is the time that all requests together were in flight until At.
	Held time.Duration `json:"-"`
	At   time.Time     `json:"-"`
}

// Busy returns which part of k slots was in use since an earlier time, on average.
func (s Stats) Busy(earlier Stats, k int) float64 {
	return float64(s.Held-earlier.Held) / float64(s.At.Sub(earlier.At)) / float64(k)
}

// Upstream is an http.Handler that holds each request for a while and counts its concurrent requests.
// GET /stats answers with its Stats as JSON, and is not counted.
type Upstream struct {
	// Hold is how long requests are held, on average.
	Hold time.Duration
	// SCV of that time, the variance divided by the squared mean: 0 is constant, 1 exponential.
	SCV int

	mu    sync.Mutex
	stats Stats
	rng   rand.PCG // the same times in each run, in order of arrival
}

// Stats returns the counts since the first request.
func (u *Upstream) Stats() Stats { return u.count(func(*Stats) {}) }

// count changes the counts. The clock is read under the lock: read before it, two callers could come out of order.
func (u *Upstream) count(change func(*Stats)) Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.stats.InFlight > 0 {
		u.stats.Held += time.Duration(u.stats.InFlight) * now.Sub(u.stats.At)
	}
	u.stats.At = now
	change(&u.stats)
	u.stats.Max = max(u.stats.Max, u.stats.InFlight)
	return u.stats
}

// ServeHTTP implements http.Handler.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stats" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(u.Stats()) // fails only if the asker is gone
		return
	}
	hold := u.Hold
	entered := u.count(func(s *Stats) {
		s.InFlight++
		if u.SCV > 0 {
			hold = time.Duration(rand.New(&u.rng).ExpFloat64() * float64(u.Hold))
		}
	}).At
	select {
	case <-time.After(hold):
	case <-r.Context().Done():
	}
	err := r.Context().Err()
	if err == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Length", "3")
		w.Header().Set(HoldHeader, strconv.FormatFloat(float64(time.Since(entered))/float64(time.Millisecond), 'f', 3, 64))
		_, err = io.WriteString(w, "ok")
	}
	u.count(func(s *Stats) {
		s.InFlight--
		if err == nil {
			s.Served++
		} else {
			s.Aborted++
		}
	})
	if err == nil {
		_, _ = io.WriteString(w, "\n") // with the last byte the gateway may admit the next request
	}
}
