package node

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/gateway"
)

// TestTicketsHoldAllIsLogged: once, and again after it was over.
func TestTicketsHoldAllIsLogged(t *testing.T) {
	var said strings.Builder
	h := hoards{slog.New(slog.NewTextHandler(&said, nil)), make(map[string]time.Time), make(map[string]bool)}
	now := time.Now()
	for range 2 {
		for _, holding := range []int{2, 2, 2, 1} {
			h.look(&gateway.PoolStatus{Name: "p", K: 2, TicketsHolding: holding}, now)
			now = now.Add(hoardedFor)
		}
	}
	if n := strings.Count(said.String(), "tickets hold all slots"); n != 2 {
		t.Errorf("told %d times: %s", n, said.String())
	}
	said.Reset()
	for range 3 {
		h.look(&gateway.PoolStatus{Name: "p", K: 2, TicketsHolding: 1}, now)
		h.look(&gateway.PoolStatus{Name: "no k yet"}, now)
		now = now.Add(hoardedFor)
	}
	if said.Len() > 0 {
		t.Error(said.String())
	}
}
