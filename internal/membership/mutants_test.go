package membership

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it. What package
// leader decides is told right and carried out: a defect there is found with real
// connections.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=3m"}, Mutants: []mutant.Mutant{
		{
			Name: "an unwelcome answer is a fault of the address", File: "addresses.go",
			Old:    "err != nil && !errors.As(err, new(peercall.Reached))",
			New:    "err != nil",
			By:     "^TestAddressesInTurn$",
			Caught: "call 2 goes to",
		},
		{
			Name: "only the last address that failed is passed over", File: "addresses.go",
			Old:    "max(0, len(failed)-3):",
			New:    "max(0, len(failed)-1):",
			By:     "^TestAddressesInTurn$",
			Caught: "call 6 goes to",
		},
		{
			Name: "a leader does not look for gateways that another could let in", File: "suspect.go",
			Old:    "\t\tj.watchOutsiders(now)\n",
			New:    "",
			By:     "^TestLeaderWithTwoBrokenLinks$",
			Caught: "the leader is out and the others stand",
		},
		{
			Name: "a suspended gateway owes nothing", File: "removal.go",
			Old:    "maps.Copy(moved, s.lose(index, node, true, c.reason(i)))",
			New:    "maps.Copy(moved, s.lose(index, node, false, c.reason(i)))",
			By:     "^TestLosses$",
			Caught: "FAIL: TestLosses",
		},
		{
			Name: "a vote that is lost is not asked for again", File: "rafttransport.go",
			Old:    "|| !t.stands(term) {",
			New:    "|| t.stands(term) {",
			By:     "^TestCandidateAsksAgain$",
			Caught: "this term: asked as often as it is of use",
		},
		{
			Name: "votes of another term are asked for again", File: "rafttransport.go",
			Old:    "t.n.raft.State() == raft.Candidate && t.n.raft.CurrentTerm() == term",
			New:    "t.n.raft.State() == raft.Candidate",
			By:     "^TestCandidateAsksAgain$",
			Caught: "another term: asked as often as it is of use",
		},
		{
			Name: "voters wait for one that takes no call", File: "election.go",
			Old:    "if a.Waits && a.Term == b.Term {",
			New:    "if a.Waits && a.Term < b.Term {",
			By:     "^TestCallsBefore$",
			Caught: "Waits:true",
		},
		{
			Name: "a voter does not say that it takes no call", File: "leaderwatch.go",
			Old:    "w.raft.State() == raft.Candidate && voted",
			New:    "w.leads() && voted",
			By:     "^TestCandidateAsksAgain$",
			Caught: "it says that it takes no call",
		},
		{
			Name: "a witness owes tokens", File: "removal.go",
			Old:    "leased = leased && !m.Witness",
			New:    "leased = leased || m.Witness",
			By:     "^TestWitnessHasNoPartInPools$",
			Caught: "owe tokens",
		},
		{
			Name: "a witness is a home", File: "view.go",
			Old:    "\t\tif !m.Witness {\n\t\t\tnames",
			New:    "\t\tif m.Name != \"\" {\n\t\t\tnames",
			By:     "^TestWitnessHasNoPartInPools$",
			Caught: "after command",
		},
		{
			Name: "slots come back while the lease may run", File: "removal.go",
			Old:    "if !s.leased(node) && s.Pools[at].forgive(node) {",
			New:    "if s.Pools[at].forgive(node) {",
			By:     "^TestLosses$",
			Caught: "FAIL: TestLosses",
		},
		{
			Name: "a refused renewal ends nothing", File: "incarnation.go",
			Old:    "\t\ti.holder.Refused(r)\n",
			New:    "",
			By:     "^TestIncarnationEnds$",
			Caught: "FAIL: TestIncarnationEnds",
		},
		{
			Name: "a standing does not lapse", File: "incarnation.go",
			Old:    "func (s Standing) Valid(now time.Time) bool { return now.Before(s.Until) }",
			New:    "func (s Standing) Valid(now time.Time) bool { return !s.Until.IsZero() || now.IsZero() }",
			By:     "^TestStandingLapsesByItself$",
			Caught: "FAIL: TestStandingLapsesByItself",
		},
		{
			Name: "dials of an earlier row count", File: "prober.go",
			Old:    "\tcase streak != t.streak:\n",
			New:    "\tcase streak != streak:\n",
			By:     "^TestProber$",
			Caught: "FAIL: TestProber",
		},
		{
			Name: "raft's timeouts do not follow from the lease", File: "timeouts.go",
			Old:    "return min(max(lease/3, leastTimeout), mostTimeout)",
			New:    "return min(200*time.Millisecond, max(lease, mostTimeout))",
			Caught: "not within|stands as|after term", By: "^TestRoundTrips$",
		},
		{
			Name: "a dial has no room for TLS", File: "timeouts.go",
			Old:    "min(4*trip, reachTimeout(lease))",
			New:    "min(2*trip, reachTimeout(lease))",
			Caught: "a dial has", By: "^TestTimeoutsHaveRoom$",
		},
		{
			Name: "a dial that is given up reaches somebody", File: "peers.go",
			Old:    "!silent(err) && !silent(context.Cause(ctx))",
			New:    "!silent(err)",
			Caught: "reached true after", By: "^TestHowLongDialsTake$",
		},
		{
			Name: "nobody is asked before the first vote", File: "rollcall.go",
			Old:    "\tif r.floor.Before(p) {",
			New:    "\tif p.Before(r.floor) {",
			Caught: "waits for the liar", By: "^TestOverstatedRollCall$",
		},
		{
			Name: "every term is believed", File: "node.go",
			Old:    "if term > most || log > term {",
			New:    "if term > term+most {",
			Caught: "is answered", By: "^TestHostileRPC$",
		},
		{
			Name: "a renewal has half a second", File: "timeouts.go",
			Old:    "return lease * 4 / 5",
			New:    "return min(lease, 500*time.Millisecond)",
			Caught: "not within|stands as|after term", By: "^TestRoundTrips$",
		},
		{
			Name: "a home's complaints do not get to the leader", File: "renew.go",
			Old:    "Missing: complaints(h.config.Missing(), ",
			New:    "Missing: complaints(nil, ",
			Caught: "not within 15s: .* sees the loss", By: "^TestMissed$",
		},
		{
			Name: "who is kept out keeps its tokens", File: "join.go",
			Old:    "!lost || !l.Leased || l.Name",
			New:    "!lost || l.Leased || l.Name",
			Caught: "was let in first|nothing is owed", By: "^TestKeptOutOwesNothing$",
		},
		{
			Name: "a leader whose disk hangs goes on leading", File: "rafttransport.go",
			Old:    "case t.n.disk.hangs():",
			New:    "case t.n == nil:",
			Caught: "agreed after", By: "^TestDiskOfTheLeaderHangs$",
		},
		{
			Name: "a leader whose entries do not arrive goes on leading", File: "rafttransport.go",
			Old:    "case heartbeat(args) && t.unfed(id):",
			New:    "case heartbeat(args) && t.unfed(id) && t.n == nil:",
			Caught: "context deadline exceeded|agreed after", By: "^TestEntriesOfTheLeaderAreLost$",
		},
		{
			Name: "who gets short packets through comes in", File: "peers.go",
			Old:    "pc.passes(ctx, p.PeerAddr)",
			New:    "pc.reaches(ctx, p.PeerAddr)",
			Caught: "not within 15s: it says so|it is in", By: "^TestNarrowPathKeepsOut$",
		},
		{
			Name: "connections are not used again", File: "peers.go",
			Old:    "MaxIdleConnsPerHost: 2 * asksPerVoter,",
			New:    "DisableKeepAlives: true,",
			Caught: "connections opened in three leases in which", By: "^TestRenewalsOpenNoConnections$",
		},
		{
			Name: "a command names everybody", File: "suspect.go",
			Old:    "maxNodes    = 512",
			New:    "maxNodes    = 2400",
			Caught: "a command of .* bytes", By: "^TestLongCommandsFit$",
		},
		{
			Name: "a verdict is one command", File: "suspect.go",
			Old:    "slices.Chunk(verdict.Suspend, maxSuspects)",
			New:    "slices.Chunk(verdict.Suspend, 10*maxNodes)",
			Caught: "a command of .* bytes", By: "^TestManyLossesAtOnce$",
		},
		{
			Name: "a voter that cannot be dialed counts", File: "election.go",
			Old:    "if !<-dialed || err != nil {",
			New:    "if <-dialed; err != nil {",
			Caught: "it counts, and cannot be dialed", By: "^TestLeaderlessMustBeDialed$",
		},
		{
			Name: "whoever says that it leads is believed", File: "elected.go",
			Old:    "if follow >= len(voters)-len(voters)/2 || against > len(voters)/2 {",
			New:    "if follow > len(voters) || against > len(voters) {",
			By:     "^TestOnlyTheElectedLead$",
			Caught: "are answered|is answered",
		},
		{
			Name: "only voters that hear from another leader count", File: "elected.go",
			Old:    "return a.Term < term || a.Term == term",
			New:    "return a.Term < 0 || a.Term == term",
			By:     "^TestRestartedVoterIsNotFooled$|^TestNotElected$",
			Caught: "which nobody has voted for|Term:4",
		},
		{
			Name: "who says that the lead is handed over is believed", File: "elected.go",
			Old:    "said.Leader != leads || slices.Contains(said.HandsOver, sender)",
			New:    "said.Leader == leads || slices.Contains(said.HandsOver, sender)",
			By:     "^TestOnlyTheElectedLead$",
			Caught: "given a vote",
		},
		{
			Name: "a leader rewrites its own term", File: "elected.go",
			Old:    "!bytes.Equal(have.Data, e.Data)",
			New:    "!bytes.Equal(have.Data, have.Data)",
			By:     "^TestRewritingLeader$",
			Caught: "takes another entry",
		},
		{
			Name: "a leader that rewrites ends whom it likes", File: "elected.go",
			Old:    "if !g.states.mostHaveMine(sender) {",
			New:    "if g.states.mostHaveMine(sender) {",
			By:     "^TestRewritingLeader$",
			Caught: "ends: ",
		},
		{
			Name: "one that says more is agreed on is waited for", File: "election.go",
			Old:    "\t\te.roll.drop()\n",
			New:    "",
			By:     "^TestOverstatedRollCall$",
			Caught: "not within 15s: a leader",
		},
		{
			Name: "terms that cannot be are believed in a roll call", File: "election.go",
			Old:    "case err != nil:\n\t\t\t\t\te.config",
			New:    "case err != nil && err == nil:\n\t\t\t\t\te.config",
			By:     "^TestSoleVoterAndItsWitness$",
			Caught: "lost what was agreed on|not within 15s: a leader",
		},
		{
			Name: "a leader that has never renewed a lease stays", File: "leaderwatch.go",
			Old:    "asked.sent.Add(2*lease)",
			New:    "asked.sent.Add(time.Hour+lease)",
			By:     "^TestMuteLeader$",
			Caught: "another one leads",
		},
		{
			Name: "states that differ are the same", File: "digest.go",
			Old:    "return found && slices.Equal(d.kept[i].Digest, c.Digest), true",
			New:    "return true || found && slices.Equal(d.kept[i].Digest, c.Digest), true",
			By:     "^TestStatesAreCompared$",
			Caught: "nobody notices",
		},
	}}.Run(t)
}
