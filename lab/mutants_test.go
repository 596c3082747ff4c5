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
		Name: "slots of tickets that are gone stay", File: "../internal/pool/expiry.go",
		Old:    "p.fx.Ended = append(p.fx.Ended, t)",
		New:    "_ = t",
		Caught: "not served|does not move|invariant",
		Args:   try(12),
	},
}
