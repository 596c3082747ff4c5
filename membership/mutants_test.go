package membership

import (
	"testing"

	"github.com/kgate/kgate/test/mutant"
)

// What package leader decides is told right and carried out: a defect there is found
// with real connections.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "raft's timeouts do not follow from the lease", File: "timeouts.go",
			Old:    "return min(max(lease/5, leastTimeout), mostTimeout)",
			New:    "return min(200*time.Millisecond, max(lease, mostTimeout))",
			Caught: "not within|stands as|after term", By: "^TestRoundTrips$",
		},
		{
			Name: "a renewal has half a second", File: "timeouts.go",
			Old:    "return lease / 3",
			New:    "return min(lease, 500*time.Millisecond)",
			Caught: "not within|stands as|after term", By: "^TestRoundTrips$",
		},
		{
			Name: "a home's complaints do not get to the leader", File: "renew.go",
			Old:    "Missing: c.missing(",
			New:    "Missing: (&Cluster{}).missing(",
			Caught: "not within 15s: .* sees the loss", By: "^TestMissed$",
		},
		{
			Name: "connections are not used again", File: "cluster.go",
			Old:    "MaxIdleConnsPerHost:   2 * asksPerVoter,",
			New:    "DisableKeepAlives: true,",
			Caught: "connections opened in three leases", By: "^TestRenewalsOpenNoConnections$",
		},
		{
			Name: "a command names everybody", File: "suspect.go",
			Old:    "const maxNodes = 512",
			New:    "const maxNodes = 2400",
			Caught: "a command of .* bytes", By: "^TestLongCommandsFit$",
		},
		{
			Name: "a verdict is one command", File: "suspect.go",
			Old:    "slices.Chunk(verdict.Suspend, maxNodes)",
			New:    "slices.Chunk(verdict.Suspend, 10*maxNodes)",
			Caught: "a command of .* bytes", By: "^TestManyLossesAtOnce$",
		},
		{
			Name: "a voter that cannot be dialed counts", File: "election.go",
			Old:    "if !<-dialed || err != nil {",
			New:    "if <-dialed; err != nil {",
			Caught: "it counts, and cannot be dialed", By: "^TestVacantMustBeDialed$",
		},
	}}.Run(t)
}
