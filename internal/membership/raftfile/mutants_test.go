package raftfile

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a missing end is taken for one that was never written", File: "../../journal/journal.go",
			Old:    "if number < acknowledged.records {",
			New:    "if number+1000 < acknowledged.records {",
			Caught: "read as another state", By: "^TestDamage$",
		},
		{
			Name: "checksums are not looked at", File: "../../journal/format.go",
			Old:    "checksum(data[:size]) != binary.LittleEndian.Uint32(data[4:]) ||",
			New:    "checksum(data[:size]) == 0 ||",
			Caught: "read as another state", By: "^TestDamage$",
		},
		{
			Name: "nothing is synced", File: "../../journal/journal.go",
			Old:    "\tif err == nil {\n\t\terr = j.handle.Sync()\n\t}\n\tif err != nil {\n\t\t// Best",
			New:    "\tif err != nil {\n\t\t// Best",
			Caught: "seed", By: "^TestPowerLoss$",
		},
		{
			Name: "each number of a vote is written", File: "stores.go",
			Old:    "k != keyTerm && k != KeyVoteTerm",
			New:    "k != keyTerm+KeyVoteTerm",
			Caught: "syncs, want", By: "^TestOneSyncForAVote$",
		},
		{
			Name: "what is agreed on is removed", File: "stores.go",
			Old:    "lowest <= f.Committed().Index && !covered {",
			New:    "lowest > f.Committed().Index+1000 && !covered {",
			Caught: "FAIL: TestContradiction", By: "^TestContradiction$",
		},
	}}.Run(t)
}
