package pace

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m", "-rapid.nofailfile", "-rapid.shrinktime=0s", "-rapid.checks=2000", "-rapid.seed=1"}, Mutants: []mutant.Mutant{
		{
			Name: "a token that leaves counts on", File: "account.go",
			Old:    "a.tokens, a.each = tokens, each",
			New:    "a.tokens, a.each = max(a.tokens, tokens), each",
			By:     "^TestBound$",
			Caught: "at most",
		},
		{
			Name: "a token brings along what may be saved up for it", File: "account.go",
			Old:    "\ta.credit = min(a.credit, a.most())\n}\n\n// Share",
			New:    "\ta.credit = a.most()\n}\n\n// Share",
			By:     "^TestBound$",
			Caught: "at most",
		},
		{
			Name: "without a rate a slow transfer takes much at once", File: "pacer.go",
			Old:    "case took > brief:",
			New:    "case took > time.Hour:",
			By:     "^TestRateIsSetMeanwhile$",
			Caught: "after the rate was set",
		},
		{
			Name: "a timer that is set stays as it is", File: "pacer.go",
			Old:    "if p.dueAt != 0 && p.dueAt <= at {",
			New:    "if p.dueAt != 0 {",
			By:     "^TestSooner$",
			Caught: "bytes in 20 ms after",
		},
		{
			Name: "a small part is taken in large pieces", File: "account.go",
			Old:    "return max(1, min(least, math.Floor(each*slow.Seconds())))",
			New:    "return least",
			By:     "^TestSmall$",
			Caught: "nothing in",
		},
		{
			Name: "the transfer that has had the most is next", File: "pacer.go",
			Old:    "return w[i].start < w[j].start",
			New:    "return w[i].start > w[j].start",
			By:     "^TestOrder$",
			Caught: "is next, not",
		},
		{
			Name: "a transfer that was slow may catch up for ever", File: "pacer.go",
			Old:    "return max(p.virtual-lag*chunk(p.account.each), f.finish)",
			New:    "return f.finish",
			By:     "^TestLatecomer$",
			Caught: "latecomer",
		},
	}}.Run(t)
}
