package kmutex_test

import (
	"math/rand/v2"
	"testing"
)

// TestBatchesLeave: while one request is served, most requests behind it are cancelled, in any order
// of events and messages. When no message is on its way, the line leads to no batch that has left it.
func TestBatchesLeave(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newChurn(churnScope{nodes: 2 + r.IntN(3), k: 1, requests: 12, cancels: 40, probes: 30}, r)
		for drain := false; len(w.log) < 700; drain = drain && len(w.flight) > 0 || r.IntN(40) == 0 {
			var ways []way
			for _, next := range w.ways() {
				if !next.ends {
					ways = append(ways, next)
				}
			}
			if drain {
				ways = w.mail(nil)
			}
			if len(ways) == 0 {
				if drain {
					continue
				}
				break
			}
			next := ways[r.IntN(len(ways))]
			w.log = append(w.log, next.name)
			err := next.take()
			if err == nil {
				err = w.check()
			}
			if err != nil {
				t.Fatalf("seed %d: %v\n%q", seed, err, w.log)
			}
		}
	}
}
