package quorum_test

import (
	"flag"
	"testing"

	"github.com/kgate/kgate/lab/check"
	"github.com/kgate/kgate/lab/protocol/quorum"
)

var seeds = flag.Int("quorum.seeds", 250, "seeds of the fuzz for each protocol")

// No seed lets two in or leaves somebody waiting. Package rounds has a fuzz of its own,
// with many resources and resets.
func TestFuzz(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 50)
	}
	for _, p := range quorum.Specs(64 * check.MaxDelay) {
		for seed := range uint64(n) {
			if err := check.Fuzz(p, check.Claims{K: 1, Crashes: true, Restarts: true, Leaves: true, Joins: true}, seed); err != nil {
				t.Errorf("%s: %v", p.Name, err)
				break
			}
		}
	}
}
