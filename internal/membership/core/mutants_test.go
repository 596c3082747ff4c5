package core

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// A defect in what decides is found by some world, or by the test that is named.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestWorlds$", Args: []string{"-core.seeds=150"}, Mutants: []mutant.Mutant{
		{
			Name: "a vote is given before it is on disk", File: "raft.go",
			Old:    "c.putWrite(record, len(responses) > 0, responses)",
			New:    "for _, r := range responses { c.pass(r) }; c.putWrite(record, true, nil)",
			Caught: "two leaders|differs|agreed on|not whole|panic",
		},
		{
			Name: "a leader grants leases without asking", File: "round.go",
			Old:    "c.node.ReadIndex(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))",
			New:    "c.confirmed(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))",
			Caught: "says its lease is over", By: "^TestDeposedLeader$",
		},
		{
			Name: "a new leader takes no lease for granted", File: "lead.go",
			Old:    "l.grantor = lease.NewGrantor(c.terms(), l.term, c.now)",
			New:    "l.grantor = lease.NewGrantor(c.terms(), l.term, c.now-c.terms().Wait())",
			Caught: "says its lease is over", By: "^TestLeasesOfTheLeaderBefore$",
		},
		{
			Name: "only voters forget a leader that is silent", File: "election.go",
			Old:    "if c.state == raft.StateLeader {\n\t\treturn\n\t}\n\tif c.lead",
			New:    "if c.state == raft.StateLeader || !c.votes() {\n\t\treturn\n\t}\n\tif c.lead",
			Caught: "not whole",
			Args:   []string{"-core.seeds=600"},
		},
		{
			Name: "whoever leaves stands", File: "command.go",
			Old:    "\tc.tellStanding(Standing{})\n",
			New:    "",
			Caught: "says its lease is over",
		},
		{
			Name: "who is behind what was agreed on stands for election", File: "rollcall.go",
			Old:    "return !c.roll.calling && !c.behind()",
			New:    "return true",
			Caught: "agreed on|differs|panic", Args: []string{"-core.seeds=600"},
		},
		{
			Name: "an old copy of a log is not noticed", File: "rollcall.go",
			Old:    "h.Last.Index < c.match(from)",
			New:    "h.Last.Index < c.match(from) && false",
			Caught: "not whole", Args: []string{"-core.seeds=600"},
		},
		{
			Name: "votes are given one by one", File: "voters.go",
			Old:    "cc.Changes = cc.Changes[:odd]",
			New:    "cc.Changes = cc.Changes[:max(odd, len(cc.Changes))]",
			Caught: "not whole|even", By: "^TestVotesAreOdd$",
		},
	}}.Run(t)
}
