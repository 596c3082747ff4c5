package netns

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
	"github.com/kgate/kgate/test/cluster"
)

// Real processes with these defects are found out.
func TestMutantsAreCaught(t *testing.T) {
	if !cluster.Soak() {
		t.Skip("takes minutes: set " + cluster.SoakVariable)
	}
	t.Setenv(cluster.SoakVariable, "") // the tests' ordinary form
	mutant.Suite{
		Program: "../../cmd/kgate", Variable: cluster.BinaryVariable,
		Mutants: []mutant.Mutant{
			{
				Name: "what is in flight goes on after the lease", File: "../../internal/gateway/ending.go",
				Old:    "\t\t\tif abort := s.takeAbort(); abort != nil {\n\t\t\t\taborts = append(aborts, abort)\n\t\t\t}\n",
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
				Name: "home does not miss those that its answer does not reach", File: "../../internal/pool/epoch.go",
				Old:    "p.home.untaken[l.To] = true",
				New:    "_ = l.To",
				By:     "^TestEdges$/^long_packets",
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
