package views

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects of the table of upstreams.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestClassNumbers$", Mutants: []mutant.Mutant{
		{
			Name: "a number may be of two upstreams", File: "class.go",
			Old: "if !taken.Has(q) {", New: "if !c.Tokens.Has(q) {",
			Caught: "entry",
		},
		{
			Name: "an upstream has fewer numbers than its k", File: "class.go",
			Old: "c.Tokens.Len() < k;", New: "c.Tokens.Len() < k-1;",
			Caught: "entry",
		},
		{
			Name: "an upstream whose k is lowered loses numbers that are in use", File: "class.go",
			Old: "c.K, c.Tokens = k, c.Tokens.Clone()", New: "c.K, c.Tokens = k, nil",
			Caught: "entry",
		},
		{
			Name: "the sum misses the upstream that is changed", File: "class.go",
			Old: "		total += c.K\n", New: "		if c.Upstream != upstream {\n			total += c.K\n		}\n",
			Caught: "k",
		},
		{
			Name: "an upstream is forgotten before the count has found nothing of it", File: "state.go",
			Old: "	if c.Whole {\n", New: "	s.Pools[at].forgetRetired()\n	if c.Whole {\n",
			Caught: "is forgotten",
		},
		{
			Name: "the count forgets an upstream that takes requests", File: "class.go",
			Old: "c.K == 0 && c.Name == \"\" })", New: "c.K <= 1 && c.Name == \"\" })",
			Caught: "entry",
		},
		{
			Name: "a server that its name has no more loses numbers that are in use", File: "class.go",
			Old: "class.K, class.Name = 0, \"\"", New: "class.K, class.Name, class.Tokens = 0, \"\", nil",
			Caught: "loses the numbers",
		},
		{
			Name: "the count leaves numbers to nobody, again and again", File: "class.go",
			Old: "(c.Name == \"\" || len(c.Tokens) > 0)", New: "true",
			Caught: "again and again", By: "^TestSetServers$",
		},
		{
			Name: "a command for another k than there is comes through", File: "class.go",
			Old: "if c.Was != 0 && have != c.Was {", New: "if c.Was != 0 && have == c.Was {",
			Caught: "was is ignored", By: "^TestSetUpstreamK$",
		},
	}}.Run(t)
}
