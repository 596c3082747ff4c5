package membership

import (
	"testing"

	"github.com/kgate/kgate/test/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a suspended gateway owes nothing", File: "lost.go",
			Old:    "moved = s.lose(index, node, true)",
			New:    "moved = s.lose(index, node, false)",
			By:     "^TestLosses$",
			Caught: "FAIL: TestLosses",
		},
		{
			Name: "slots come back while the lease may run", File: "lost.go",
			Old:    "if !s.leased(node) && s.Pools[at].forgive(node) {",
			New:    "if s.Pools[at].forgive(node) {",
			By:     "^TestLosses$",
			Caught: "FAIL: TestLosses",
		},
		{
			Name: "a refused renewal ends nothing", File: "standing.go",
			Old:    "\t\tt.holder.Refused(r)\n",
			New:    "",
			By:     "^TestTenureEnds$",
			Caught: "FAIL: TestTenureEnds",
		},
		{
			Name: "a standing does not lapse", File: "standing.go",
			Old:    "func (s Standing) Valid(now time.Time) bool { return now.Before(s.Until) }",
			New:    "func (s Standing) Valid(now time.Time) bool { return !s.Until.IsZero() || now.IsZero() }",
			By:     "^TestStandingLapsesByItself$",
			Caught: "FAIL: TestStandingLapsesByItself",
		},
		{
			Name: "dials of an earlier row count", File: "evidence.go",
			Old:    "\tcase row != t.run:\n",
			New:    "\tcase row != row:\n",
			By:     "^TestEvidence$",
			Caught: "FAIL: TestEvidence",
		},
	}}.Run(t)
}
