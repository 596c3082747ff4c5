package lab_test

import (
	"strconv"
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The fuzz finds these defects, and says how to see each again. The packages' own tables have
// others.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{
		Package: "./fuzz", By: "^TestSeeds$", Args: []string{"-fuzz.seeds=600", "-fuzz.findings=1"},
		Note: `kgate-lab replay \d+ --mode \w+`, Mutants: mutants,
	}.Run(t)
}

// try has a seed tried first that is known to find the defect.
func try(seed int) []string { return []string{"-fuzz.try=" + strconv.Itoa(seed)} }

var mutants = []mutant.Mutant{
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
		Name: "home does not wait for the last report", File: "../replication/epoch.go",
		Old:    "if len(e.awaited) > 0 {\n\t\treturn nil\n\t}\n\treturn e.plan()",
		New:    "if len(e.awaited) > 1 || e.Planned() {\n\t\treturn nil\n\t}\n\treturn e.plan()",
		Caught: "more than k|invariant|not in order|not back|panic",
	},
	{
		Name: "an upstream whose k is lowered loses numbers that are in use", File: "../internal/membership/views/class.go",
		Old:    "c.K, c.Tokens = k, c.Tokens.Clone()",
		New:    "c.K, c.Tokens = k, nil",
		Caught: "more than k",
		Args:   try(0),
	},
	{
		Name: "one upstream is lowered and another's tokens are kept back", File: "../coordinator/classes.go",
		Old:    "set.KeepAll(l.classes[i])",
		New:    "_ = i",
		Caught: "more than k",
		Args:   try(0),
	},
	{
		Name: "the lease is not looked at after a wake-up", File: "../lab/cluster/upstream.go",
		Old:    "if !p.entitled() {\n\t\treturn // void comes",
		New:    "if false {\n\t\treturn // void comes",
		Caught: "more than k",
		Args:   try(718),
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
		Args:   try(42),
	},
	{
		Name: "slots of tickets that are gone stay", File: "../internal/pool/expiry.go",
		Old:    "p.fx.Ended = append(p.fx.Ended, t)",
		New:    "_ = t",
		Caught: "not served|does not move|invariant",
		Args:   try(12),
	},
	// Membership's core.
	{
		Name: "a vote is given before it is on disk", File: "../internal/membership/core/raft.go",
		Old:    "c.putWrite(record, responses)",
		New:    "for _, r := range responses { c.pass(r) }; c.putWrite(record, nil)",
		Caught: "agreement is broken|panic|not in order|does not move|lost what was agreed on",
	},
	{
		Name: "a leader grants leases without asking", File: "../internal/membership/core/round.go",
		Old:    "c.node.ReadIndex(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))",
		New:    "c.confirmed(binary.BigEndian.AppendUint64(nil, l.grantor.Ask()))",
		Caught: "more than k|agreement is broken",
	},
	{
		Name: "a new leader takes no lease for granted", File: "../internal/membership/core/lead.go",
		Old:    "l.grantor = lease.NewGrantor(c.terms(), l.term, c.now)",
		New:    "l.grantor = lease.NewGrantor(c.terms(), l.term, c.now-c.terms().Wait())",
		Caught: "more than k|agreement is broken",
	},
	{
		Name: "whoever leaves stands", File: "../internal/membership/core/command.go",
		Old:    "\tc.tellStanding(Standing{})\n",
		New:    "",
		Caught: "agreement is broken",
	},
	{
		Name: "an old copy of a log is not noticed", File: "../internal/membership/core/rollcall.go",
		Old:    "h.Last.Index < c.match(from)",
		New:    "h.Last.Index < c.match(from) && false",
		Caught: "not in order|does not move|panic|agreement is broken|lost what was agreed on",
		Args:   try(604),
	},
	{
		Name: "a leader goes on while its disk hangs", File: "../internal/membership/core/lead.go",
		Old:    "\tif c.diskHangs() {\n\t\tc.handOver()",
		New:    "\tif false {\n\t\tc.handOver()",
		Caught: "not in order|does not move",
	},
	{
		Name: "a new incarnation is let in beside the one before", File: "../internal/membership/core/incarnation.go",
		Old:    "\ti.node, i.holder, i.void, i.joinAt = 0, nil, false, c.now\n",
		New:    "\ti.void = false\n",
		Caught: "not in order|does not move|agreement|panic",
	},
}
