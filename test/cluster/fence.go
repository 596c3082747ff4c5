package cluster

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
	epoch, err := parseFence(value)
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
	if epoch < f.newest {
		f.old = append(f.old, OldRequest{At: time.Now(), From: r.Header.Get(fromHeader), Epoch: epoch, Newest: f.newest})
		return false
	}
	f.newest = epoch
	return true
}

// parseFence reads pool/founded/epoch/serial.
func parseFence(value string) (epoch uint64, err error) {
	rest, serial, ok := cutLast(value)
	if !ok {
		return 0, fmt.Errorf("%s is %q", FenceHeader, value)
	}
	if _, err := strconv.ParseUint(serial, 10, 64); err != nil {
		return 0, fmt.Errorf("serial of %s %q: %w", FenceHeader, value, err)
	}
	pool, text, ok := cutLast(rest)
	if !ok || pool == "" {
		return 0, fmt.Errorf("%s is %q", FenceHeader, value)
	}
	return strconv.ParseUint(text, 10, 64)
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// Refused returns what the guard has refused, and what was wrong with headers.
func (f *Fence) Refused() ([]OldRequest, []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]OldRequest(nil), f.old...), append([]error(nil), f.errs...)
}
