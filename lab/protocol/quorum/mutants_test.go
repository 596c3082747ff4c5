package quorum_test

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Defects that need a certain order of events, which the fuzz of package rounds does
// not come by: the tests that have it by construction find them.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a request stands in line twice", File: "message.go", By: "^TestManyEnqueues$", Caught: "in line",
			Old: "	if there {\n		line[i].Round, line[i].At = max(line[i].Round, r.Round), max(line[i].At, r.At)\n		return line\n	}\n", New: "	_ = there\n",
		},
		{
			Name: "lost nodes get the vote one after the other", File: "replica.go", By: "^TestRequestsOfTheLost$", Caught: "a lease later",
			Old: "f.host.Now()-q.At >= f.opt.Lease", New: "false",
		},
		{
			Name: "a former owner passes a request on each time", File: "e2e.go", By: "^TestManyEnqueues$", Caught: "passed on",
			Old: "p.passed = append(p.passed, m.req)", New: "_ = p.passed",
		},
		{
			Name: "votes of different contexts count together", File: "client.go", By: "^TestVotesOfOneContext$", Caught: "entered",
			Old: "v.context == c.context && ", New: "",
		},
		{
			Name: "an old vote counts", File: "client.go", By: "^TestOldVotes$", Caught: "half a lease ago",
			Old: " && f.fresh(v)", New: "",
		},
		{
			Name: "a vote for a request that is over is kept", File: "client.go", By: "^TestVoteForNothing$", Caught: "sends",
			Old: "		f.disown(at, m)\n", New: "",
		},
		{
			Name: "timestamps begin anew with a node's next life", File: "membership.go", By: "^TestTimestampsOfTwoLives$", Caught: "first .* then",
			Old: "	f.nodes[node].clock = clock\n", New: "	_ = clock\n",
		},
		{
			Name: "YIELD has a new timestamp", File: "client.go", By: "^TestThreeOutcomes$", Caught: "nobody wins",
			Old: "	c.tries = min(c.tries+1, maxTries)\n", New: "	c.req.TS += 9\n",
		},
		{
			Name: "what is behind a lost node is not cleared", File: "membership.go", By: "^TestRouteIsMended$", Caught: "cleared false",
			Old: "		f.route(at, message{kind: clean, key: k})\n", New: "",
		},
	}}.Run(t)
}
