package fuzz

import (
	"flag"
	"testing"
)

var seeds = flag.Uint64("fuzz.seeds", 300, "how many seeds TestSeeds plays, in each mode")

func TestSeeds(t *testing.T) {
	served, events, epochs := 0, uint64(0), uint64(0)
	failed := 0
	for seed := range *seeds {
		for _, mode := range []Mode{Safety, Liveness} {
			r, err := Run(New(seed, mode), nil)
			if err != nil {
				if failed++; failed < 20 {
					t.Errorf("seed %d, %s: %v", seed, mode, err)
				}
			}
			served += r.Served
			events += r.Events
			epochs += r.Epochs
		}
	}
	t.Logf("%d failed; %d served, %d events, %d epochs", failed, served, events, epochs)
}
