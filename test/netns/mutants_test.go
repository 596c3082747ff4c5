package netns

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/test/cluster"
)

// Real processes with these defects are found out.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{
		Program: "../../cmd/kgate", Variable: cluster.BinaryVariable, Soak: cluster.SoakVariable,
		Mutants: []mutant.Mutant{
			{
				Name: "what is in flight goes on after the lease", File: "../../internal/gateway/claims.go",
				Old:    "\t\t\taborts = append(aborts, abort)\n",
				New:    "",
				By:     "^TestFaults$/^the_leader_and_one_more",
				Caught: "requests in flight at the upstream",
			},
			{
				Name: "reports need a connection of their own", File: "../../internal/transport/payload.go",
				Old:    "\tcase s == nil:\n",
				New:    "\tcase s == nil || !l.dials():\n",
				By:     "^TestEdges$/^one_opens_none",
				Caught: "while the fault lasts|after the fault|is not ready",
			},
			{
				Name: "a link over which nothing long passes is up", File: "../../internal/transport/link.go",
				Old:    "return l.since, !l.up",
				New:    "return l.ended, l.active == nil",
				By:     "^TestEdges$/^packets_",
				Caught: "while the fault lasts",
			},
			{
				Name: "a leader that renews nothing is a leader", File: "../../internal/membership/leaderwatch.go",
				Old:    "last.sent.Add(lease*3/5)",
				New:    "last.sent.Add(100*lease)",
				By:     "^TestSlowLeader$",
				Caught: "has lost its lease|while the leader is slow",
			},
		},
	}.Run(t)
}
