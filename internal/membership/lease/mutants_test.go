package lease

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The worlds find these defects, or a table does.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestWorlds$", Args: []string{"-lease.seeds=300"}, Mutants: []mutant.Mutant{
		{
			Name: "the lease is counted from the reply", File: "holder.go",
			Old:    "until := h.sent[r.Tag%outstanding] +",
			New:    "until := now +",
			Caught: "calls it expired",
		},
		{
			Name: "the margin is ignored", File: "holder.go",
			Old:    "+ h.terms.Lease - h.terms.margin()",
			New:    "+ h.terms.Lease",
			Caught: "calls it expired",
		},
		{
			Name: "an older answer counts from the newest renewal", File: "holder.go",
			Old:    "h.sent[r.Tag%outstanding]",
			New:    "h.sent[h.tag%outstanding]",
			Caught: "calls it expired",
		},
		{
			Name: "an answer revives a lease that has lapsed", File: "holder.go",
			Old:    "h.tag-r.Tag >= min(outstanding, h.tag) || h.Over(now)",
			New:    "h.tag-r.Tag >= min(outstanding, h.tag)",
			Caught: "has a lease again",
		},
		{
			Name: "the grantor counts from receiving without the tenth", File: "terms.go",
			Old:    "return drift.Keep(t.Lease, t.Bound)",
			New:    "return t.Lease + t.Bound",
			Caught: "calls it expired",
		},
		{
			Name: "a new leader does not wait", File: "grantor.go",
			Old:    "now-max(g.since, g.granted[node])",
			New:    "now-g.granted[node]",
			Caught: "calls it expired",
		},
		{
			Name: "a round answers what came after it began", File: "round.go",
			Old:    "granted = append(granted, g.grant(g.open[0].renewals)...)",
			New:    "maps.Copy(g.open[0].renewals, g.pending)\n\t\tgranted = append(granted, g.grant(g.open[0].renewals)...)",
			Caught: `granted \[\{`, By: "^TestRounds$",
		},
		{
			Name: "what was granted does not count", File: "round.go",
			Old:    "g.granted[node] = r.at\n",
			New:    "",
			Caught: "calls it expired",
		},
		{
			Name: "a member that is not lost may be called expired, and is granted on", File: "grantor.go",
			Old:    "if g.member(node) || !g.lost[node] {",
			New:    "if !g.lost[node] && !g.member(node) {",
			Caught: "node 2 at 1h0m0s: expired true", By: "^TestExpired$",
		},
	}}.Run(t)
}
