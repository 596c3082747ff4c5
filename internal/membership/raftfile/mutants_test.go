package raftfile

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "what is noted during a write waits for the next", File: "stores.go",
			Old:    "	defer f.done()\n	if len(logs) == 0 {",
			New:    "	defer f.writing.Unlock()\n	if len(logs) == 0 {",
			Caught: "Index:1|Index:0", By: "^TestNotedDuringAWrite$",
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
