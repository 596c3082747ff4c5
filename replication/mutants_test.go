package replication

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The random schedules find these defects.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestRandomSchedules$", Mutants: []mutant.Mutant{
		{
			Name: "a copy shows a table of which only a part is there", File: "copy.go",
			Old:    "c.stage = stage\n",
			New:    "c.stage, c.have = stage, stage\n",
			Caught: "is nowhere|has gone back|is unknown",
		},
		{
			Name: "an acknowledgement counts for what came after it", File: "replicas.go",
			Old:    "s.outstanding, s.Progress = 0, a.Progress",
			New:    "if s.outstanding, s.Progress = 0, a.Progress; s.Staged == 0 && s.Version > 0 {\n\t\ts.Version = r.table.Version()\n\t}",
			Caught: "is nowhere|has gone back",
		},
		{
			Name: "an acknowledgement of another push counts", File: "replicas.go",
			Old:    "if s == nil || s.outstanding != a.Seq {",
			New:    "if s == nil {",
			Caught: "seed",
		},
		{
			Name: "a new successor does not count", File: "replicas.go",
			Old:    "for _, s := range r.successors {\n\t\tleast = min(least, s.Version)",
			New:    "for _, s := range r.successors {\n\t\tif s.Version == 0 {\n\t\t\tcontinue\n\t\t}\n\t\tleast = min(least, s.Version)",
			Caught: "is nowhere|has gone back|is unknown",
		},
		{
			Name: "what is synced goes by one successor alone", File: "replicas.go",
			Old:    "least := r.table.Version()\n\tfor _, s := range r.successors {\n\t\tleast = min(least, s.Version)",
			New:    "least := uint64(0)\n\tfor _, s := range r.successors {\n\t\tleast = max(least, s.Version)",
			Caught: "is nowhere|has gone back|is unknown|is synced",
		},
		{
			Name: "former successors drop their copies at once", File: "replicas.go",
			Old:    "if !r.CaughtUp() {\n\t\treturn out\n\t}\n",
			New:    "",
			Caught: "is nowhere|has gone back|is unknown",
		},
		{
			Name: "the heir takes any copy", File: "estate.go",
			Old:    "have == nil || have.To < d.To",
			New:    "have == nil",
			Caught: "is nowhere|has gone back",
		},
		{
			Name: "what was taken over is taken over again", File: "estate.go",
			Old:    "for _, a := range r.Absorbed {\n\t\t\ttaken[a.Node] = true\n\t\t}\n",
			New:    "",
			Caught: "is at nodes|has gone back|is unknown",
		},
		{
			Name: "what a lost gateway had taken over itself is forgotten", File: "estate.go",
			Old:    "for _, a := range d.Absorbed {\n\t\t\t\ttaken[a.Node] = true\n\t\t\t}\n",
			New:    "",
			Caught: "is at nodes|has gone back|is unknown",
		},
		{
			Name: "copies go before their heir is synced", File: "copies.go",
			Old:    "if a.At <= version {",
			New:    "if true {",
			Caught: "is nowhere|is unknown|has gone back",
		},
		{
			Name: "a slot that was given back is handed on", File: "estate.go",
			Old:    "(running.Has(r.Token) || r.Fence.Less(last[r.Token]))",
			New:    "false",
			Caught: "want", By: "^TestSettle$",
		},
		{
			Name: "slots that are taken over change tokens", File: "forming.go",
			Old:    "Token: rec.Token, Serial",
			New:    "Token: i.Records[len(i.Records)-1-n].Token, Serial",
			Caught: "is nowhere|two holders", By: "^TestTwoLosses$",
		},
		{
			Name: "what a copy had taken over counts although nobody uses it", File: "estate.go",
			Old:    "slices.Backward(lost)",
			New:    "slices.All(lost)",
			Caught: "want those of 1 and 3", By: "^TestSettleChain$",
		},
		{
			Name: "a lost restart goes on where the transfer before it was", File: "replicas.go",
			Old:    "s.began, s.Staged = r.table.Version(), 0",
			New:    "s.began = r.table.Version()",
			Caught: "copy .* want", By: "^TestLostRestart$",
		},
		{
			Name: "deletions are forgotten and nobody knows", File: "store.go",
			Old:    "s.forgotten = c.At\n",
			New:    "",
			Caught: "has gone back|is at nodes|two holders|still",
		},
		{
			Name: "an old push is taken in after a retirement", File: "copies.go",
			Old:    "if p.Seq <= mine.seq {",
			New:    "if false {",
			Caught: "still has a copy",
		},
	}}.Run(t)
}
