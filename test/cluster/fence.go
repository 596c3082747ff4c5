package cluster

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// FenceHeader is what gateways tell upstreams.
const FenceHeader = "Kgate-Fence"

// Fence is an upstream's guard by the header: it refuses requests of an older
// epoch than it has seen. It is safe for concurrent use.
type Fence struct {
	mu     sync.Mutex
	newest uint64
	seen   map[string]bool
	old    []OldRequest
	errs   []error
}

// OldRequest is one that a Fence has refused.
type OldRequest struct {
	At   time.Time
	From string
	// Epoch of the request; Newest was seen before.
	Epoch, Newest uint64
}

// Around has h serve only what passes the guard.
func (f *Fence) Around(h http.Handler) http.Handler {
	f.seen = make(map[string]bool)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.pass(r) {
			http.Error(w, "an older epoch", http.StatusPreconditionFailed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (f *Fence) pass(r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	value := r.Header.Get(FenceHeader)
	grant, err := parseGrant(value)
	if err == nil && f.seen[value] {
		err = fmt.Errorf("%s %q has come twice", FenceHeader, value)
	}
	if err != nil {
		if len(f.errs) < 10 {
			f.errs = append(f.errs, err)
		}
		return true
	}
	f.seen[value] = true
	if grant.number < f.newest {
		f.old = append(f.old, OldRequest{At: time.Now(), From: r.Header.Get(fromHeader), Epoch: grant.number, Newest: f.newest})
		return false
	}
	f.newest = grant.number
	return true
}

// Refused returns what the guard has refused, and what was wrong with headers.
func (f *Fence) Refused() ([]OldRequest, []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]OldRequest(nil), f.old...), append([]error(nil), f.errs...)
}
