package leader

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// A rule that is broken is found by the table, or by the test that it names.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{By: "^TestTable$", Mutants: []mutant.Mutant{
		{
			Name: "everybody is named as a reporter", File: "reason.go",
			Old:    "why == Missing && misses",
			New:    "why == Missing || misses",
			Caught: "reported by", By: "^TestReasonsInWords$",
		},
		{
			Name: "a witness goes on leading", File: "judge.go",
			Old:    "return witness && serves",
			New:    "return witness && !serves && r.since == never",
			By:     "^TestHandOver$",
			Caught: "it_is_a_witness",
		},
		{
			Name: "whoever keeps others out stays", File: "admit.go",
			Old:    "case !r.connected(names, len(set)+1):",
			New:    "case !r.connected(names, len(set)+1) || true:",
			Caught: "want \"a larger group|handed over: false", By: "^TestKeepers$",
		},
		{
			Name: "only one member at a time keeps others out", File: "admit.go",
			Old:    "case !r.connected(names, len(set)+1):",
			New:    "case !r.connected(names, len(set)+1) || len(set) > 1:",
			Caught: "node . is suspended|want \"a larger group|handed over: false", By: "^TestKeepers$",
		},
		{
			Name: "as many as go are enough", File: "admit.go",
			Old:    "case !r.connected(names, len(set)+1):",
			New:    "case !r.connected(names, len(set)):",
			Caught: "is suspended: a larger group", By: "^TestKeepers$",
		},
		{
			Name: "gateways that do not reach each other count together", File: "admit.go",
			Old:    "return other == name || r.kept[other].unreached[name] || r.kept[name].unreached[other]",
			New:    "return other == name",
			Caught: "is suspended: a larger group", By: "^TestKeepers$",
		},
		{
			Name: "the last member stays", File: "admit.go",
			Old:    "if len(r.kept) < 2 {",
			New:    "if len(r.members) < 2 || len(r.kept) < 2 {",
			Caught: `node 2: "" after 0s`, By: "^TestLastMemberKeeps$",
		},
		{
			Name: "one that reaches none of the others speaks for all", File: "admit.go",
			Old:    "for _, first := range names {",
			New:    "for _, first := range names[:1] {",
			Caught: "want \"a larger group", By: "^TestKeepers$",
		},
		{
			Name: "whose reports do not come is back at once", File: "flaps.go",
			Old:    "if why == Missing || why == Unheard {",
			New:    "if false {",
			Caught: "before its lease is over", By: "^TestMissingStaysOutForItsLease$",
		},
		{
			Name: "a renewal does not speak against dials", File: "judge.go",
			Old:    "!ever || heard < since",
			New:    "true || !ever || heard < since",
			Caught: "node 3 is suspended: its peer port",
		},
		{
			Name: "names are compared and not incarnations", File: "judge.go",
			Old:    "s.Boots[m.Name] != m.Boot:",
			New:    "s.Boots[m.Name] == \"\":",
			Caught: "it_came_back_as_another",
		},
		{
			Name: "gossip outweighs a lease that is over", File: "judge.go",
			Old:    "case quiet >= r.terms.Wait():",
			New:    "case quiet >= r.terms.Wait() && s.Boots[m.Name] == \"\":",
			Caught: `node 3: "" after`,
		},
		{
			Name: "gossip alone suspends", File: "judge.go",
			Old:    "case quiet >= r.terms.Lease/2 && s",
			New:    "case s",
			Caught: "node 3 is suspended: gossip|after 50ms, want",
		},
		{
			Name: "a newcomer's report is missed before its link can be up", File: "judge.go",
			Old:    "joined && now-at < firstReport(r.terms) {",
			New:    "joined && now-at < 0 {",
			Caught: "node 6:", By: "^TestNewcomerHasTime$",
		},
		{
			Name: "the complaint of one end counts", File: "judge.go",
			Old:    "if a != b && slices.Contains(down[b], a) {",
			New:    "if a != b {",
			Caught: "is suspended: its link to another", By: "^TestTable$|^TestSeparate",
		},
		{
			Name: "everybody of a pair goes", File: "judge.go",
			Old:    "\t\tfor other := range pairs[worst] {\n\t\t\tdelete(pairs[other], worst)\n\t\t}\n",
			New:    "",
			Caught: "goes, and has all its links|want \\[", By: "^TestSeparate",
		},
		{
			Name: "a home does not accuse itself", File: "judge.go",
			Old:    "!in || rep.at-since",
			New:    "!in || node == home || rep.at-since",
			Caught: "a_home_cannot_make_its_own_report",
		},
		{
			Name: "homes are not believed", File: "judge.go",
			Old:    "if !r.view.IsHome(home) ||",
			New:    "if true ||",
			Caught: `want "its report does not reach|want "it is a pool's home`,
		},
		{
			Name: "anybody is believed", File: "judge.go",
			Old:    "if !r.view.IsHome(home) ||",
			New:    "if",
			Caught: "is suspended: its report does not reach",
		},
		{
			Name: "a home that misses most is believed", File: "judge.go",
			Old:    "if living >= 2 && 2*living > renew-1 {",
			New:    "if false {",
			Caught: `want "it is a pool's home, and most`,
		},
		{
			Name: "one complaint is enough", File: "judge.go",
			Old:    "rep.at-since < r.terms.Interval()/2 {",
			New:    "rep.at < since {",
			Caught: "node 3 is suspended", By: "^TestOneComplaintIsNone$",
		},
		{
			Name: "of two gateways the home goes", File: "judge.go",
			Old:    "if living >= 2 && 2",
			New:    "if 2",
			Caught: "node 1 is suspended", By: "^TestTwoGateways$",
		},
		{
			Name: "those who do not follow the views stay", File: "judge.go",
			Old:    "rep.View < r.view.Number &&",
			New:    "false &&",
			Caught: "it renews its lease and does not follow",
		},
		{
			Name: "a leader that was stopped believes in silence", File: "judge.go",
			Old:    "\t\tr.awake = now\n",
			New:    "",
			Caught: "is suspended", By: "^TestStoppedLeaderSuspectsNobody$",
		},
		{
			Name: "a leader stays whom nobody gets through to", File: "judge.go",
			Old:    "return not > through",
			New:    "return false",
			Caught: "most_are_not_heard", By: "^TestHandOver$",
		},
		{
			Name: "a leader stays whom no voter confirms", File: "judge.go",
			Old:    "now-max(r.unconfirmed, r.awake) >= patience {",
			New:    "false {",
			Caught: "the_voters_do_not_answer", By: "^TestHandOver$",
		},
		{
			Name: "the lead is handed over for those that are gone", File: "judge.go",
			Old:    "case !gone && s.Boots[m.Name] == m.Boot:",
			New:    "case gone || m.Name != \"\":",
			Caught: "most_are_gone|gossip_does_not_see_most", By: "^TestHandOver$",
		},
		{
			Name: "the lead is handed over again and again", File: "judge.go",
			Old:    "r.resigns && now-r.handed < 4*wait",
			New:    "false",
			Caught: "handed over again|is forgotten", By: "^TestHandOver$",
		},
		{
			Name: "a leader stays that keeps everybody out", File: "admit.go",
			Old:    "\tr.kept[name] = o\n",
			New:    "",
			Caught: "a leader that all are kept out for stays", By: "^TestHandOverToThoseKeptOut$",
		},
		{
			Name: "a leader that is kept out itself is none of those that are", File: "judge.go",
			Old:    "name == s.Self || slices",
			New:    "name == \"\" || slices",
			Caught: "keeps another out, and stays", By: "^TestHandOverByOneThatIsOut$",
		},
		{
			Name: "the longest hold counts from the suspension", File: "debts.go",
			Old:    "node); leased {",
			New:    "node); leased && false {",
			Caught: "given back after", By: "^TestReturn$",
		},
		{
			Name: "tokens come back without the longest hold", File: "debts.go",
			Old:    "over && now-at >= p.HoldMax",
			New:    "over && now-at >= 0",
			Caught: "given back after", By: "^TestReturn$",
		},
		{
			Name: "members that are lost expire at once", File: "debts.go",
			Old:    "if r.grantor.Expired(node, now) {",
			New:    "if true {",
			Caught: "expired after", By: "^TestReturn$",
		},
		{
			Name: "one that is silent keeps others out", File: "admit.go",
			Old:    "|| r.silent(node, now) >= r.terms.Lease/2 {",
			New:    "|| r.silent(node, now) < 0 {",
			Caught: "not one that is silent", By: "^TestLetIn$",
		},
		{
			Name: "an incarnation that is no more keeps others out", File: "admit.go",
			Old:    "if s.Boots[m.Name] != m.Boot ||",
			New:    "if s.Boots[m.Name] == \"\" ||",
			Caught: "not one that came back", By: "^TestLetIn$",
		},
		{
			Name: "whoever reaches nobody comes in", File: "admit.go",
			Old:    "obstacles = append(obstacles, m.Name)\n",
			New:    "",
			Caught: "not a member that renews", By: "^TestLetIn$",
		},
		{
			Name: "a gateway that flaps comes back at once", File: "rules.go",
			Old:    "\t\t\tr.flapped(r.members[node].Name, r.accused[node], now)\n",
			New:    "",
			Caught: "d does not wait", By: "^TestFlapBackoff$",
		},
		{
			Name: "flap backoff does not grow", File: "flaps.go",
			Old:    "wait = min(2*last.wait, longBackoff)",
			New:    "wait = shortBackoff",
			Caught: "it does not wait for", By: "^TestFlapBackoff$",
		},
	}}.Run(t)
}
