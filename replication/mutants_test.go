package replication

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The random schedules find these defects.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestRandomSchedules$", Mutants: []mutant.Mutant{
		{
			Name: "a replica shows a table of which only a part is there", File: "replica.go",
			Old:    "r.stage = stage\n",
			New:    "r.stage, r.have = stage, stage\n",
			Caught: "is nowhere|has gone back|is unknown",
		},
		{
			Name: "an acknowledgement counts for what came after it", File: "replicator.go",
			Old:    "s.outstanding, s.Progress = 0, a.Progress",
			New:    "if s.outstanding, s.Progress = 0, a.Progress; s.Staged == 0 && s.Version > 0 {\n\t\ts.Version = r.table.Version()\n\t}",
			Caught: "is nowhere|has gone back",
		},
		{
			Name: "an acknowledgement of another push counts", File: "replicator.go",
			Old:    "if s == nil || s.outstanding != a.Seq {",
			New:    "if s == nil {",
			Caught: "seed",
		},
		{
			Name: "a new successor does not count", File: "replicator.go",
			Old:    "for _, s := range r.successors {\n\t\tleast = min(least, s.Version)",
			New:    "for _, s := range r.successors {\n\t\tif s.Version == 0 {\n\t\t\tcontinue\n\t\t}\n\t\tleast = min(least, s.Version)",
			Caught: "is nowhere|has gone back|is unknown|told nothing, and it did",
		},
		{
			Name: "what is synced goes by one successor alone", File: "replicator.go",
			Old:    "least := r.table.Version()\n\tfor _, s := range r.successors {\n\t\tleast = min(least, s.Version)",
			New:    "least := uint64(0)\n\tfor _, s := range r.successors {\n\t\tleast = max(least, s.Version)",
			Caught: "is nowhere|has gone back|is unknown|is synced|told nothing, and it did",
		},
		{
			Name: "former successors drop their replicas at once", File: "replicator.go",
			Old:    "if !r.caughtUp() {\n\t\treturn out\n\t}\n",
			New:    "",
			Caught: "is nowhere|has gone back|is unknown",
		},
		{
			Name: "the successor takes any replica", File: "handover.go",
			Old:    "have == nil || have.To < d.To",
			New:    "have == nil",
			Caught: "want", By: "^TestSettle$",
		},
		{
			Name: "what was taken over is taken over again", File: "handover.go",
			Old:    "for _, a := range r.Absorbed {\n\t\t\ttaken[a.Node] = true\n\t\t}\n",
			New:    "",
			Caught: "is at nodes|has gone back|is unknown|is nowhere",
		},
		{
			Name: "what a lost gateway had taken over itself is forgotten", File: "handover.go",
			Old:    "for _, a := range d.Absorbed {\n\t\t\t\ttaken[a.Node] = true\n\t\t\t}\n",
			New:    "",
			Caught: "is at nodes|has gone back|is unknown",
		},
		{
			Name: "replicas go before their successor is synced", File: "delta.go",
			Old:    "if a.At <= version {",
			New:    "if true {",
			Caught: "is nowhere|is unknown|has gone back",
		},
		{
			Name: "a slot that was given back is handed on", File: "handover.go",
			Old:    "(running.Has(r.Token) || r.Fence.less(last[r.Token]))",
			New:    "false",
			Caught: "want", By: "^TestSettle$",
		},
		{
			Name: "slots that are taken over change tokens", File: "epoch.go",
			Old:    "Token: rec.Token, Serial",
			New:    "Token: h.Records[len(h.Records)-1-n].Token, Serial",
			Caught: "is nowhere|two holders", By: "^TestTwoLosses$",
		},
		{
			Name: "what a replica had taken over counts although nobody uses it", File: "handover.go",
			Old:    "slices.Backward(lost)",
			New:    "slices.All(lost)",
			Caught: "want those of 1 and 3", By: "^TestSettleChain$",
		},
		{
			Name: "a lost restart goes on where the transfer before it was", File: "replicator.go",
			Old:    "s.began, s.Staged = r.table.Version(), 0",
			New:    "s.began = r.table.Version()",
			Caught: "replica .* want", By: "^TestLostRestart$",
		},
		{
			Name: "deletions are forgotten and nobody knows", File: "store.go",
			Old:    "s.forgotten = c.At\n",
			New:    "",
			Caught: "has gone back|is at nodes|two holders|still",
		},
		{
			Name: "a successor that has joined later knows that nothing was told before", File: "witnessed.go",
			Old:    "if uint64(self.Node) > began {",
			New:    "if false {",
			Caught: "told nothing, and it did",
		},
		{
			Name: "who stood between them for a while does not count", File: "witnessed.go",
			Old:    "(s.Out == 0 || s.Out > began)",
			New:    "s.Out == 0",
			Caught: "told nothing, and it did|between them for a while", By: "^TestWitnessed$",
		},
		{
			Name: "what a gateway kept while it was away is whole", File: "witnessed.go",
			Old:    "return owner.Name != self.Name",
			New:    "return false && owner.Name != self.Name",
			Caught: "relies on it", By: "^TestBackWithOldCopies$",
		},
		{
			Name: "a gateway that was not away has missed something", File: "witnessed.go",
			Old:    "out != uint64(self.Node) && (owner",
			New:    "(owner",
			Caught: "at once, and", By: "^TestMissed$",
		},
		{
			Name: "a former successor's replica does not count", File: "replicator.go",
			Old:    "old.may = true",
			New:    "old.may = false",
			Caught: "relies on it", By: "^TestFormerSuccessor$",
		},
		{
			Name: "tickets that nobody knows may have any token", File: "epoch.go",
			Old:    "change.Owed || !b.Bounded",
			New:    "change.Owed || !b.Bounded || true",
			Caught: "want \\{1,2\\}", By: "^TestUnknownClaimsNoLaterLoss$",
		},
		{
			Name: "what nobody knows may have no token", File: "epoch.go",
			Old:    "Bounded: true, Tokens: installs[0].Withheld",
			New:    "Bounded: true",
			Caught: "relies on it", By: "^TestLostWithAllWhoKnew$",
		},
		{
			Name: "an old push is taken in after a retirement", File: "replicaset.go",
			Old:    "if p.Seq <= mine.seq {",
			New:    "if false {",
			Caught: "still has a replica",
		},
	}}.Run(t)
}
