package lab_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The fuzz finds these defects, and says how to see each again. The long run has those,
// too, that the tests of the packages find that they are planted in.
func TestMutantsAreCaught(t *testing.T) {
	suite := mutant.Suite{
		Package: "./fuzz", By: "^TestSeeds$", Args: []string{"-fuzz.seeds=600", "-fuzz.findings=1"},
		Note: `kgate-lab replay \d+ --mode \w+`, Mutants: mutants,
	}
	if os.Getenv("KGATE_SOAK") != "" {
		suite.Mutants = append(suite.Mutants, others...)
	}
	suite.Run(t)
}

// try has a seed tried first that is known to find the defect.
func try(seed int) []string { return []string{"-fuzz.try=" + strconv.Itoa(seed)} }

var (
	mutants = []mutant.Mutant{
		{
			Name: "a cancel forgets the token", File: "../kmutex/request.go",
			Old:    "m.recorded = len(m.fx.Grants)\n\t\tm.release(t)",
			New:    "m.recorded = len(m.fx.Grants)",
			Caught: "invariant|which is over|panic",
		},
		{
			Name: "messages of an old epoch are taken in", File: "../kmutex/request.go",
			Old:    "case e.Message.Epoch < m.epoch:",
			New:    "case e.Message.Epoch+1 < m.epoch:",
			Caught: "invariant|protocol violation|more than k",
		},
		{
			Name: "tokens that lost gateways may use are not withheld", File: "../kmutex/plan.go",
			Old:    "case !p.doubt():",
			New:    "case true:",
			Caught: "more than k",
		},
		{
			Name: "home does not wait for the last report", File: "../replication/epoch.go",
			Old:    "if len(e.awaited) > 0 {\n\t\treturn nil\n\t}\n\treturn e.plan()",
			New:    "if len(e.awaited) > 1 || e.Planned() {\n\t\treturn nil\n\t}\n\treturn e.plan()",
			Caught: "more than k|invariant|not in order|not back|panic",
		},
		{
			Name: "a leader grants without asking a majority", File: "../internal/membership/lease/round.go",
			Old:    "if r.yes <= r.voters/2 ||",
			New:    "if r.yes < 1 ||",
			Caught: "more than k",
			Args:   try(74),
		},
		{
			Name: "the lease is not looked at after a wake-up", File: "../lab/cluster/upstream.go",
			Old:    "if !p.entitled() {\n\t\treturn // void comes",
			New:    "if false {\n\t\treturn // void comes",
			Caught: "more than k",
			Args:   try(620),
		},
		{
			Name: "requests go on when the lease is over", File: "../lab/cluster/process.go",
			Old:    "p.c.endAll(p.gateway, \"isolated\")\n",
			New:    "",
			Caught: "more than k|not served",
		},
		{
			Name: "a holder is told before the successors know", File: "../internal/pool/table.go",
			Old:    "return version <= ts.replicator.Synced() &&",
			New:    "return true || version <= ts.replicator.Synced() &&",
			Caught: "forgotten",
			Args:   try(141),
		},
		{
			Name: "a message to a member of a newer view is lost", File: "../internal/pool/pool.go",
			Old:    "p.early = append(p.early, *m)",
			New:    "_ = m",
			Caught: "invariant|not served",
			Args:   try(655),
		},
		{
			Name: "slots of tickets that are gone stay", File: "../internal/pool/expiry.go",
			Old:    "p.fx.Ended = append(p.fx.Ended, t)",
			New:    "_ = t",
			Caught: "not served|does not move|invariant",
			Args:   try(12),
		},
	}
	others = []mutant.Mutant{
		{
			Name: "the baton is passed on and kept", File: "../kmutex/line.go",
			Old:    "m.baton = false\n",
			New:    "",
			Caught: "invariant 3|a second baton",
		},
		{
			Name: "a requester keeps its parent", File: "../kmutex/line.go",
			Old:    "m.parent = 0\n\tm.asked",
			New:    "m.asked",
			Caught: "invariant 4|invariant 5|impossible origin",
		},
		{
			Name: "the coordinator grants tokens beyond k", File: "../coordinator/late.go",
			Old:    "return max(0, l.free.Len()-l.excess)",
			New:    "return l.free.Len()",
			Caught: "more than k",
		},
		{
			Name: "free tokens are passed on and kept", File: "../coordinator/late.go",
			Old:    "baton.Free = l.take(&l.free, l.free.Len()-keep)",
			New:    "_, baton.Free = keep, l.free.Clone()",
			Caught: "invariant 2",
		},
		{
			Name: "the table of tails is stale", File: "../coordinator/early.go",
			Old:    "e.tails[e.counter] = s\n",
			New:    "",
			Caught: "invariant 7|a second child|no such seat|panic|more than k",
		},
		{
			Name: "a token is handed over in the critical section", File: "../coordinator/early.go",
			Old:    "if s.token != kmutex.NoToken && s.request == 0 {\n\t\te.handOver",
			New:    "if s.token != kmutex.NoToken {\n\t\te.handOver",
			Caught: "invariant|more than k|unexpected request|panic",
		},
		{
			Name: "a cancelled request takes its seat along", File: "../coordinator/early.go",
			Old:    "s := e.seats[serial]\n\ts.request = 0\n\te.seats[serial] = s\n\treturn true",
			New:    "delete(e.seats, serial)\n\treturn true",
			Caught: "invariant 7|no such seat|panic",
		},
		{
			Name: "a new leader does not wait", File: "../internal/membership/lease/grantor.go",
			Old:    "now-max(g.since, g.granted[node])",
			New:    "now-g.granted[node]",
			Caught: "more than k",
			Args:   try(772),
		},
		{
			Name: "tokens come back before the lease has run out", File: "../internal/membership/lease/terms.go",
			Old:    "return drift.Keep(t.Lease, t.Bound)",
			New:    "return t.Lease / 2",
			Caught: "more than k",
			Args:   try(55),
		},
		{
			Name: "suspended gateways are granted more", File: "../internal/membership/lease/grantor.go",
			Old:    "return g.members[node]",
			New:    "return true",
			Caught: "still withheld|more than k",
		},
		{
			Name: "whoever keeps others out stays", File: "../internal/membership/leader/admit.go",
			Old:    "case !r.connected(names, len(set)+1):",
			New:    "case !r.connected(names, len(set)+1) || true:",
			Caught: "does not move",
		},
		{
			Name: "one that reaches none of the others speaks for all that are out", File: "../internal/membership/leader/admit.go",
			Old:    "for _, first := range names {",
			New:    "for _, first := range names[:1] {",
			Caught: "does not move",
			Args:   try(4896),
		},
		{
			Name: "only one member at a time keeps others out", File: "../internal/membership/leader/admit.go",
			Old:    "case !r.connected(names, len(set)+1):",
			New:    "case !r.connected(names, len(set)+1) || len(set) > 1:",
			Caught: "does not move", By: "^TestLinksBreakOneByOne$",
		},
		{
			Name: "flap backoff does not end", File: "../internal/membership/leader/flaps.go",
			Old:    "until: now + wait}",
			New:    "until: now + 100*wait}",
			Caught: "does not move|not in order",
			Args:   try(4),
		},
		{
			Name: "a letter that is lost stays lost", File: "../internal/pool/event.go",
			Old:    "} else if p.matters(&l) {\n\t\tpause",
			New:    "} else if false {\n\t\tpause",
			Caught: "does not move|not in order|not served",
			Args:   try(100),
		},
		{
			Name: "home is not told since when tickets are unknown", File: "../internal/pool/epoch.go",
			Old:    "\tp.cfg.Memory.unknown.Report(r, now)\n",
			New:    "",
			Caught: "not served",
			Args:   try(332),
		},
		{
			Name: "a leader that is kept out itself stays", File: "../internal/membership/leader/judge.go",
			Old:    "name == s.Self || slices",
			New:    "name == \"\" || slices",
			Caught: "does not move",
			Args:   try(100819),
		},
		{
			Name: "an incarnation that has lapsed stays as long as gossip sees the name", File: "../internal/membership/leader/judge.go",
			Old:    "case quiet >= r.terms.Wait():\n\t\t\ttake(node, Over)\n\t\tcase quiet >= r.terms.Lease/2 && s.Boots[m.Name] != m.Boot:",
			New:    "case quiet >= r.terms.Lease/2 && s.Boots[m.Name] == \"\":",
			Caught: "does not move",
			Args:   try(136),
		},
		{
			Name: "links that are down between members stay so", File: "../internal/membership/leader/judge.go",
			Old:    "if a != b && slices.Contains(down[b], a) {",
			New:    "if a == b && slices.Contains(down[b], a) {",
			Caught: "does not move|not in order",
			Args:   try(21),
		},
		{
			Name: "a leader stays whom the members do not get through to", File: "../internal/membership/leader/judge.go",
			Old:    "if r.unconfirmed != never && now-max(r.unconfirmed, r.awake) >= patience {\n\t\treturn true",
			New:    "if true {\n\t\treturn false",
			Caught: "does not move",
			Args:   try(1919),
		},
	}
)
