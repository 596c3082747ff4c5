package core_test

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// A defect in what decides is found by the test that is named. The lab's fuzz has a table of its own.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a leader grants leases without asking", File: "round.go",
			Old:    "c.node.ReadIndex(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))",
			New:    "c.confirmed(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))",
			Caught: "says that its lease is over", By: "^TestDeposedLeader$",
		},
		{
			Name: "a new leader takes no lease for granted", File: "lead.go",
			Old:    "l.grantor = lease.NewGrantor(c.terms(), l.term, c.now)",
			New:    "l.grantor = lease.NewGrantor(c.terms(), l.term, c.now-c.terms().Wait())",
			Caught: "says that its lease is over", By: "^TestLeasesOfTheLeaderBefore$",
		},
		{
			Name: "only voters forget a leader that is silent", File: "election.go",
			Old:    "if c.state == raft.StateLeader {\n\t\treturn\n\t}\n\tif c.lead",
			New:    "if c.state == raft.StateLeader || !c.votes() {\n\t\treturn\n\t}\n\tif c.lead",
			Caught: "not in order", By: "^TestWorlds$", Args: []string{"-core.seeds=600"},
		},
		{
			Name: "votes are given one by one", File: "voters.go",
			Old:    "cc.Changes = cc.Changes[:odd]",
			New:    "cc.Changes = cc.Changes[:max(odd, len(cc.Changes))]",
			Caught: "not in order|even", By: "^TestVotesAreOdd$",
		},
		{
			Name: "who leaves does not wait until its vote is taken", File: "command.go",
			Old:    "if in || c.votes() && (c.needed() || c.missed()) {",
			New:    "if in {",
			Caught: "not in order", By: "^TestManyLeave$",
		},
		{
			Name: "whoever has a connection is alive", File: "voters.go",
			Old:    "p != nil && c.now-p.answered < c.pacing()/3",
			New:    "p != nil",
			Caught: "not in order|does not go on", By: "^TestSomeAreCutOffAndAnotherLeaves$",
		},
		{
			Name: "a leader that nobody answers takes all others out", File: "judge.go",
			Old:    "Alone: !c.majorityAnswers(),",
			New:    "Alone: false,",
			Caught: "hears nobody: too many", By: "^TestOthersKeepTheirLeases$",
		},
		{
			Name: "the slowest voter sets the pace of elections", File: "peers.go",
			Old:    "trips[others-1]",
			New:    "trips[len(trips)-1]",
			Caught: "slow: too many", By: "^TestOthersKeepTheirLeases$",
		},
		{
			Name: "whose disk hangs is alive", File: "handover.go",
			Old:    "return l.matches[id] == last",
			New:    "return last > 0",
			Caught: "not in order|does not go on", By: "^TestSomeAreCutOffAndAnotherLeaves$",
		},
		{
			Name: "a change counts on who was lost a moment ago", File: "voters.go",
			Old:    "c.takesPart(ID(v)) && c.peers.conns[ID(v)].answered <= l.wanted",
			New:    "false",
			Caught: "not in order|does not go on", By: "^TestSomeAreCutOffAndAnotherLeaves$",
		},
		{
			Name: "who answered while a change before was wanted counts", File: "voters.go",
			Old:    "if first != l.want {",
			New:    "if l.wanted == 0 {",
			Caught: "not in order|does not go on", By: "^TestSomeAreCutOffAndAnotherLeaves$",
		},
		{
			Name: "a hello is believed of what is not here", File: "rollcall.go",
			Old:    "p.Index > c.last().Index || p.Index <= c.agreed().Index",
			New:    "p.Index <= c.agreed().Index",
			Caught: "out of range", By: "^TestNonsenseInHello$",
		},
		{
			Name: "who leaves hands over to the lost", File: "handover.go",
			Old:    "rank += 256",
			New:    "rank += 0",
			Caught: "not in order", By: "^TestHandsOverToWhoAnswers$",
		},
		{
			Name: "only leaders tell what is agreed on", File: "rollcall.go",
			Old:    "c.believeAgreed(h.Agreed)",
			New:    "_ = 0",
			Caught: "not in order", By: "^TestKilledAsItTakesVotes$",
		},
		{
			Name: "a new leader gives nobody time to answer", File: "lead.go",
			Old:    "p.answered = c.now",
			New:    "p.answered = 0",
			Caught: "is the oldest", By: "^TestNewLeaderHearsFirst$",
		},
		{
			Name: "the only voter leaves and does not stand", File: "election.go",
			Old:    "return max(c.election.at, c.orphan+c.pacing()/2)",
			New:    "return c.now + lookAgain",
			Caught: "not in order", By: "^TestManyLeave$",
		},
		{
			Name: "who is to leave is handed the lead", File: "handover.go",
			Old:    "p != nil && (p.hello == nil || !p.hello.Leaving)",
			New:    "p != nil",
			Caught: "not in order", By: "^TestManyLeave$|^TestAllLeave$",
		},
		{
			Name: "a snapshot lacks the servers", File: "raft.go",
			Old:    "json.Marshal(snapshotData{state, c.servers})",
			New:    "json.Marshal(snapshotData{state, nil})",
			Caught: "not in order", By: "^TestNewcomersLead$",
		},
		{
			Name: "elections wait for as long as disks have hung", File: "raft.go",
			Old:    "min(c.now-w.at, c.lease()/4)",
			New:    "c.now - w.at",
			Caught: "not in order", By: "^TestDisksHung$",
		},
		{
			Name: "who never got a lease waits for it for ever", File: "../lease/holder.go",
			Old:    "if now >= h.until {",
			New:    "if h.held && now >= h.until {",
			Caught: "stand", By: "^TestNothingArrives$",
		},
	}}.Run(t)
	mutant.Suite{Package: "..", Mutants: []mutant.Mutant{
		{
			Name: "who is behind what was agreed on stands for election", File: "rollcall.go",
			Old:    "return !c.roll.calling && !c.behind()",
			New:    "return true",
			Caught: "it leads|an old copy is believed", By: "^TestOldCopyOfTheOnlyVoter$",
		},
	}}.Run(t)
}
