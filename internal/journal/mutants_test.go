package journal_test

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a missing end is taken for one that was never written", File: "journal.go",
			Old:    "if number < acknowledged.records {",
			New:    "if number+1000 < acknowledged.records {",
			Caught: "read as another state", By: "^TestDamage$",
		},
		{
			Name: "checksums are not looked at", File: "format.go",
			Old:    "checksum(data[:size]) != binary.LittleEndian.Uint32(data[4:]) ||",
			New:    "checksum(data[:size]) == 0 ||",
			Caught: "read as another state", By: "^TestDamage$",
		},
		{
			Name: "nothing is synced", File: "journal.go",
			Old:    "\tif err == nil {\n\t\terr = j.handle.Sync()\n\t}\n\tif err != nil {\n\t\t// Best",
			New:    "\tif err != nil {\n\t\t// Best",
			Caught: "seed", By: "^TestPowerLoss$",
		},
		{
			Name: "a file that is written again is not synced", File: "journal.go",
			Old:    "\tif err == nil {\n\t\terr = handle.Sync()\n\t}\n",
			New:    "",
			Caught: "seed", By: "^TestPowerLoss$",
		},
		{
			Name: "a file that has failed is believed again", File: "journal.go",
			Old:    "\t\tj.broken = err\n",
			New:    "\t\tj.broken = nil\n",
			Caught: "is believed again", By: "^TestRecover$",
		},
		{
			Name: "only the lock file is locked", File: "fs.go",
			Old:    "if err := flock(f); err != nil {",
			New:    "if err := flock(f); err != nil && filepath.Ext(path) == \".lock\" {",
			Caught: "a second process opens it", By: "^TestOneProcess$",
		},
	}}.Run(t)
}
