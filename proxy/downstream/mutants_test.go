package downstream

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests of package proxy find more of them.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a wildcard comes before the name", File: "certificate.go",
			Old: "[]string{name, \"*.\" + parent}", New: "[]string{\"*.\" + parent, name}",
			By: "^TestCertificatesByName$", Caught: "FAIL",
		},
		{
			Name: "a header that is continued has no time", File: "frames.go",
			Old: "f.block = !last", New: "f.block = false",
			By: "^TestFrameTimer$", Caught: "incomplete behind",
		},
	}}.Run(t)
}
