package kmutex_test

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects; where none is named, the search of small worlds
// does.
func TestMutantsAreCaught(t *testing.T) {
	t.Setenv("KMUTEX_SCHEDULES", "10000") // none goes on after the first that fails
	mutant.Suite{By: "^TestExplore$/.*/(n=2|n=3,k=1,requests=1|n=4,k=1)", Mutants: []mutant.Mutant{
		{
			Name: "a requester keeps its parent", File: "line.go",
			Old:    "m.parent = 0\n\tm.asked",
			New:    "m.asked",
			Caught: "invariant 4|invariant 5|impossible origin",
		},
		{
			Name: "the baton is passed on and kept", File: "line.go",
			Old:    "m.baton = false\n",
			New:    "",
			Caught: "invariant 3",
		},
		{
			Name: "a batch that is over does not pass the baton on", File: "line.go",
			Old:    "default:\n\t\t\tm.pass(next, true)",
			New:    "default:\n\t\t\treturn",
			Caught: "invariant 5|nothing can happen|invariant 8",
		},
		{
			Name: "the table of tails is stale", File: "../coordinator/early.go",
			Old:    "e.tails[e.counter] = s\n",
			New:    "",
			Caught: "invariant 7|a second child|no such seat",
		},
		{
			Name: "a token is handed over in the critical section", File: "../coordinator/early.go",
			Old:    "if s.token != kmutex.NoToken && s.request == 0 {\n\t\te.handOver",
			New:    "if s.token != kmutex.NoToken {\n\t\te.handOver",
			Caught: "invariant 1|invariant 2|invariant 6",
		},
		{
			Name: "a cancelled request takes its seat along", File: "../coordinator/early.go",
			Old:    "s := e.seats[serial]\n\ts.request = 0\n\te.seats[serial] = s\n\treturn true",
			New:    "delete(e.seats, serial)\n\treturn true",
			Caught: "invariant 7|no such seat|panic",
		},
		{
			Name: "an idle tail keeps its token from its child (misprint E1 of the paper)", File: "../coordinator/early.go",
			Old:    "if s.child.IsZero() {\n\t\t\te.put(serial, s)\n\t\t\treturn",
			New:    "if !s.child.IsZero() {\n\t\t\te.put(serial, s)\n\t\t\treturn",
			Caught: "invariant|nothing can happen|panic",
		},
		{
			Name: "a frozen node counts free tokens", File: "state.go",
			Old:    "if !m.frozen {\n\t\tfree, _ := m.binding.FreeHere()",
			New:    "{\n\t\tfree, _ := m.binding.FreeHere()",
			Caught: "parts:", By: "^TestRandomSchedules$",
		},
		{
			Name: "a node counts withheld tokens", File: "state.go",
			Old:    "if g.Token >= 0 && !m.withheld.Has(g.Token) {",
			New:    "if g.Token >= 0 {",
			Caught: "parts:", By: "^TestRandomSchedules$",
		},
		{
			Name: "withheld tokens are given out", File: "plan.go",
			Old:    "case !p.doubt():",
			New:    "case true:",
			Caught: "safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "a free token is believed although an epoch may have begun since", File: "plan.go",
			Old:    "if current {\n\t\t\tp.idle",
			New:    "if true {\n\t\t\tp.idle",
			Caught: "safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "the k of an epoch that nobody alive has entered is forgotten", File: "plan.go",
			Old:    "if !current {\n\t\t\tp.tokens",
			New:    "if false {\n\t\t\tp.tokens",
			Caught: "safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "a gateway that has just joined says that there is no token", File: "plan.go",
			Old:    "if current && r.Installed == 0 {",
			New:    "if r.Installed == 0 {",
			Caught: "withheld", By: "^TestPlanTokens$",
		},
		{
			Name: "tokens are minted when nobody knows how many there were", File: "plan.go",
			Old:    "p.withheld, p.idle = p.known(p.K), nil",
			New:    "p.idle = nil",
			Caught: "safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "a newcomer claims to know all tokens", File: "install.go",
			Old:    "if c.Epoch == 1 || self == c.Home",
			New:    "if self != 0",
			Caught: "tokens", By: "^TestNewcomersDoNotKnowTheTokens$",
		},
		{
			Name: "a withheld token is given out as free", File: "plan.go",
			Old:    "used.AddAll(p.withheld)",
			New:    "_ = used",
			Caught: "invariant|safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "withheld tokens leave room for others", File: "plan.go",
			Old:    "used.AddAll(p.withheld)\n",
			New:    "",
			Caught: "invariant|safety|bad install|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "after k is lowered, none of the tokens is too many", File: "plan.go",
			Old:    "if n <= 0 {\n\t\treturn excess\n\t}\n\tif excess == nil",
			New:    "if true {\n\t\treturn excess\n\t}\n\tif excess == nil",
			Caught: "safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "early: nothing is kept", File: "../coordinator/early.go",
			Old:    "e.kept.Len() <= e.excess",
			New:    "e.kept.Len() == 0",
			Caught: "safety|parts", By: "^TestRandomSchedules$",
		},
		{
			Name: "early: the token goes on that has just come back", File: "../coordinator/early.go",
			Old:    "q, _ = e.kept.Next(0)\n",
			New:    "",
			Caught: "nothing can happen|invariant|panic", By: "^TestRandomSchedules$",
		},
		{
			Name: "early: too many tokens stay in their queues", File: "../coordinator/early.go",
			Old:    "case excess > 0:\n\t\t\tn.away",
			New:    "case false:\n\t\t\tn.away",
			Caught: "safety|invariant|panic", By: "^TestRandomSchedules$",
		},
		{
			Name: "two adopted slots get one token", File: "plan.go",
			Old:    "\tp.running.Add(q)\n\treturn true",
			New:    "\treturn true",
			Caught: "which is impossible|runs elsewhere too|invariant 2", By: "^TestRandomSchedules$",
		},
		{
			Name: "an adopted slot's token is used again while its lost node may use it", File: "plan.go",
			Old:    "if g.Request >= FirstAdopted && (p.Owed || p.Claimed.Has(g.Token)) {",
			New:    "if false {",
			Caught: "in the epochs after", By: "^TestPlanTokens$",
		},
		{
			Name: "a request is adopted twice", File: "epoch.go",
			Old:    "m.adopted = max(m.adopted, t)",
			New:    "_ = t",
			Caught: "taken over again", By: "^TestAdoptedOnce$",
		},
		{
			Name: "the install of an old epoch is accepted", File: "epoch.go",
			Old:    "in.Epoch == 0 || m.epoch != 0 && in.Epoch != m.epoch:",
			New:    "in.Epoch == 0:",
			Caught: "takes the install", By: "^TestRandomSchedules$",
		},
		{
			Name: "a token leaves its serial behind", File: "../coordinator/early.go",
			Old:    "s.token, s.last = q, last",
			New:    "s.token = q",
			Caught: "serial", By: "^TestRandomSchedules$",
		},
	}}.Run(t)
}
