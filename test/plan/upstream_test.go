package plan

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// holdParameter says in a request how long the upstream is to hold it.
const holdParameter = "hold"

// upstream holds each request as long as the request says, and counts how many it
// has at once.
type upstream struct {
	mu           sync.Mutex
	inside, most int
}

func serveUpstream(tb testing.TB) (*upstream, string) {
	tb.Helper()
	u := new(upstream)
	server := httptest.NewServer(u)
	tb.Cleanup(server.Close)
	return u, server.URL
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.count(1)
	hold, err := time.ParseDuration(r.FormValue(holdParameter))
	if err != nil {
		u.count(-1)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	// With the answer the gateway may let the next one in.
	u.count(-1)
	w.WriteHeader(http.StatusOK)
}

func (u *upstream) count(d int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inside += d
	u.most = max(u.most, u.inside)
}
