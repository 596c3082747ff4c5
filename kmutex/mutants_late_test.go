package kmutex_test

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects in late binding, where tokens rest away from the baton.
func TestLateMutantsAreCaught(t *testing.T) {
	t.Setenv("KMUTEX_SCHEDULES", "10000") // none goes on after the first that fails
	const rules, machine, classes, offers = "../coordinator/demand.go", "../coordinator/late.go", "../coordinator/classes.go", "offer.go"
	mutant.Suite{By: "^TestExplore$/late.*/(n=2|n=3,k=2,requests=1|n=4,k=1)", Mutants: []mutant.Mutant{
		{
			Name: "free tokens are passed on and kept", File: machine,
			Old: "baton.Free, l.free = without(l.free, keep).Clone(), keep", New: "_, baton.Free = keep, l.free.Clone()",
			Caught: "invariant 2",
		},
		{
			Name: "the baton forgets parked tokens", File: machine,
			Old: "l.collect(p.Free, 0, p.Resting,", New: "l.collect(nil, 0, p.Resting,",
			Caught: "invariant 2",
		},
		{
			Name: "a node with tokens that stay does not join the list", File: machine,
			Old: "if l.self != l.home && l.stays() {\n\t\tnames", New: "if false {\n\t\tnames",
			Caught: "invariant 11",
		},
		{
			Name: "a node is listed for the tokens that are free only", File: rules,
			Old: "return l.free.Len()+will.Len() > 0", New: "return l.free.Len() > 0",
			Caught: "invariant 11",
		},
		{
			Name: "a released token that is wanted stays", File: machine,
			Old: "if l.coordinator || !marked {", New: "if true || marked {",
			Caught: "invariant 8|invariant 11|nothing can happen",
		},
		{
			Name: "who gives too little does not mark its running tokens", File: rules,
			Old: "default:\n\t\tl.mark()\n", New: "default:\n",
			Caught: "invariant 11",
		},
		{
			Name: "the names of a recall are forgotten", File: rules,
			Old: "l.recall(want-n, 1, at, m.Resting, fx)", New: "_ = at",
			By: "^TestExplore$/late.*/n=(3|4)|^TestRandomSchedules$", Caught: "invariant 11",
		},
		{
			Name: "a recall that meets the baton forgets its names", File: rules,
			Old: "\t\tl.list(m.Resting)\n\t\treturn\n", New: "\t\treturn\n",
			By: "^TestRandomSchedules$", Args: []string{"-schedules.first=41090"}, Caught: "invariant 11",
		},
		{
			Name: "names with late tokens are forgotten", File: rules,
			Old: "kmutex.Message{Hops: m.Hops + 1, Resting: m.Resting}", New: "kmutex.Message{Hops: m.Hops + 1}",
			By: "^TestRandomSchedules$", Caught: "invariant 11",
		},
		{
			Name: "home forgets what it still owes", File: rules,
			Old: "if l.wanted -= paid; l.wanted > 0 {", New: "if l.wanted = 0; paid == 0 {",
			Caught: "invariant 12",
		},
		{
			Name: "home owes an older baton, too", File: rules,
			Old: "{Number: m.Number, Holder: m.Holder}, 0\n\t}", New: "{Number: m.Number, Holder: m.Holder}, l.wanted\n\t}",
			By: "^TestExplore$/late.*/n=(2|3)|^TestRandomSchedules$", Caught: "invariant 12",
		},
		{
			Name: "home does not mark what it owes", File: rules,
			Old: "l.wanted > 0 {\n\t\tl.mark()\n\t}", New: "l.wanted > 0 {\n\t}",
			Caught: "invariant 8|nothing can happen",
		},
		{
			Name: "the coordinator does not count what is paid", File: rules,
			Old: "l.due = max(0, l.due-paid)", New: "_ = paid",
			Caught: "invariant 12",
		},
		{
			Name: "home is not told what is wanted", File: rules,
			Old: "if l.due < want {", New: "if false {",
			Caught: "nothing can happen|invariant 8",
		},
		{
			Name: "a coordinator without tokens does not recall any", File: rules,
			Old: "l.recall(want, want, l.where, names, fx)", New: "_ = names",
			Caught: "invariant 11|nothing can happen|invariant 8",
		},
		{
			Name: "the next coordinator does not know what was asked for", File: machine,
			Old: "baton.Want = uint32(l.ask(ahead+short, fx))", New: "l.ask(ahead+short, fx)",
			Caught: "invariant 12",
		},
		{
			Name: "the coordinator grants tokens beyond k", File: classes,
			Old: "of.Len()-int(l.excess[i])", New: "of.Len()",
			By: "^TestRandomSchedules$", Caught: "safety",
		},
		{
			Name: "the next coordinator does not know how many are too many", File: machine,
			Old: "l.counter, l.excess = int(baton.Counter), baton.Excess", New: "l.counter, l.excess = int(baton.Counter), nil",
			By: "^TestRandomSchedules$", Caught: "safety",
		},
		{
			Name: "tokens come without the serial of their last grant", File: rules,
			Old: "fx.Send(l.home, kmutex.Message{Kind: kmutex.KindTokens, Free: set, Serial: l.serial})", New: "fx.Send(l.home, kmutex.Message{Kind: kmutex.KindTokens, Free: set})",
			By: "^TestRandomSchedules$", Caught: "serial",
		},
		{
			Name: "tokens that run rest although somebody waits as the epoch begins", File: machine,
			Old: "\tif !rests {\n\t\tl.mark()\n\t}\n", New: "",
			By: "^TestRandomSchedules$", Caught: "invariant 11",
		},
		{
			Name: "an epoch's tokens are spread and not listed", File: machine,
			Old: "l.list(in.Resting)", New: "_ = in",
			By: "^TestRandomSchedules$", Caught: "invariant 11",
		},
		{
			Name: "an offered token is used by a node that cannot", File: machine,
			Old: "if l.barred.Has(q) {\n\t\treturn false", New: "if false {\n\t\treturn false",
			By: "^TestRandomSchedules$", Caught: "whose token it cannot use",
		},
		{
			Name: "an offered token stays where it was used", File: machine,
			Old: "\tl.back.Add(q)\n\treturn true", New: "\treturn true",
			By: "^TestRandomSchedules$", Caught: "invariant 11",
		},
		{
			Name: "one class is lowered and another keeps tokens back", File: classes,
			Old: "set.KeepAll(l.classes[i])", New: "_ = i",
			By: "^TestRandomSchedules$", Caught: "safety|invariant|tokens are free at the end",
		},
		{
			Name: "the coordinator keeps what it cannot use", File: offers,
			Old: "\t\tm.moveOn(m.binding.Shed(), 0)\n", New: "",
			By: "^TestRandomSchedules$", Caught: "invariant 8",
		},
		{
			Name: "what rests at the end of the line is not offered to who comes", File: offers,
			Old: "len(m.offered) > 0 && !m.batches[last].Next.IsZero()", New: "false && !m.batches[last].Next.IsZero()",
			By: "^TestRandomSchedules$", Caught: "invariant 8|nothing can happen",
		},
		{
			Name: "an offer to a batch that the baton has passed is dropped", File: offers,
			Old: "if !known {\n\t\tm.binding.Return(left, &m.fx)\n", New: "if !known {\n",
			By: "^TestRandomSchedules$", Caught: "invariant 2",
		},
		{
			Name: "a batch in which requests wait is skipped", File: offers,
			Old: "b.Leaves || len(b.Requests) > 0 ||", New: "b.Leaves ||",
			By: "^TestRandomSchedules$", Caught: "invariant 5",
		},
		{
			Name: "a batch believes a message that its sender has left behind", File: offers,
			Old: "before.Changes > b.Before.Changes", New: "true",
			By: "^TestBatchesLeave$", Caught: "does not get out of the line",
		},
		{
			Name: "a batch that leaves passes others by", File: offers,
			Old: "case b.Leaves:", New: "case false:",
			By: "^TestBatchesLeave$", Caught: "invariant 5",
		},
		{
			Name: "what rests at the end of the line stays there as the baton comes", File: "line.go",
			Old: "\t\t\tm.offered = nil\n", New: "\t\t\tm.offered = m.offered.Clone()\n",
			By: "^TestExplore$/late/n=2.*barring=1", Caught: "invariant 2|invariant 8",
		},
		{
			Name: "home pays with tokens of another class, and is not asked again", File: rules,
			Old: "l.due += l.ask(short-l.due, fx)\n", New: "_ = short\n",
			By: "^TestRandomSchedules$", Caught: "tokens are free at the end|safety|invariant",
		},
	}}.Run(t)
}
