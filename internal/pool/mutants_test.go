package pool

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a ticket that is granted while its holder waits gets no new time", File: "tickets.go",
			Old: "if t.waiters > 0 { // its holder is waiting here: a sign that is not noted yet\n\t\tt.sign(now)\n\t}\n\tif", New: "if false {\n\t}\n\tif",
			By: "^TestGrantedWhileAwaited$", Caught: "is left",
		},
		{
			Name: "a pool that cannot begin its epoch asks for nothing", File: "repair.go",
			Old:    "begin: %w\", p.view.Epoch, err)\n\tp.mend(now)",
			New:    "begin: %w\", p.view.Epoch, err)",
			Caught: "asked for 0 times", By: "^TestAsksUntilAnEpochBegins$",
		},
		{
			Name: "a successor without copies takes it that there were no tickets", File: "succession.go",
			Old:    " ||\n\t\t\tts.Absorbed(l.Node) || !p.view.Witnessed(l.Node) {",
			New:    " ||\n\t\t\tts.Absorbed(l.Node) {",
			Caught: "witnessed: false", By: "^TestLostWithoutTickets$",
		},
		{
			Name: "an incarnation that ends before its disk is read says nothing", File: "succession.go",
			Old:    "case p.view.Tickets:\n",
			New:    "case false:\n",
			Caught: "want an empty table", By: "^TestEndsBeforeItsDiskIsRead$",
		},
		{
			Name: "a gateway that comes back keeps what it missed changes of", File: "succession.go",
			Old:    "return v.Missed(owner, kept)",
			New:    "return false && v.Missed(owner, kept)",
			Caught: "want those of node 3", By: "^TestDropsWhatItMissed$",
		},
		{
			Name: "a write has all pushes that came meanwhile", File: "tickets.go",
			Old:    " && r.letter.unwritten <= received",
			New:    "",
			Caught: "acknowledged \\[", By: "^TestAcknowledgesWhatIsWritten$",
		},
		{
			Name: "what a gateway knows that joins after the plan is not asked for", File: "event.go",
			Old:    "\tp.askJoined(now)\n",
			New:    "",
			Caught: "epochs were asked for at \\[\\]", By: "^TestJoinsWithTickets$",
		},
		{
			Name: "a report goes before the disk has been read", File: "epoch.go",
			Old:    "if p.disk != DiskUnread || !v.Tickets || v.joins(p.cfg.Self) {\n\t\tp.sendReport(now)",
			New:    "if true {\n\t\tp.sendReport(now)",
			Caught: "want frozen", By: "^TestStates$",
		},
		{
			Name: "a report that is ahead of home's view is forgotten", File: "home.go",
			Old:    "return ErrNotYet",
			New:    "return nil",
			Caught: "home misses", By: "^TestStates$",
		},
		{
			Name: "who joins before home has heard of it is forgotten", File: "home.go",
			Old:    ", !slices.Contains(p.view.Members, from):",
			New:    ":",
			Caught: "gateway 4", By: "^TestJoinsBeforeItsView$",
		},
		{
			Name: "who joins is not answered", File: "home.go",
			Old:    "range p.view.Members {\n\t\tp.answer(n)",
			New:    "range p.view.founders() {\n\t\tp.answer(n)",
			Caught: "gateway 4", By: "^TestJoins$",
		},
		{
			Name: "a letter that is lost stays lost", File: "event.go",
			Old:    "} else if p.matters(&l) {\n\t\tpause",
			New:    "} else if false {\n\t\tpause",
			Caught: "sent 1 times", By: "^TestLettersGoAgain$",
		},
		{
			Name: "tokens that never left are withheld", File: "epoch.go",
			Old:    "r.Free.AddAll(p.reclaimed)\n",
			New:    "",
			Caught: "free: ", By: "^TestUnsent$",
		},
		{
			Name: "tokens of an old epoch's message are free", File: "pool.go",
			Old:    "if p.state == Void || m.Epoch != p.installed {",
			New:    "if p.state == Void {",
			Caught: "free: ", By: "^TestUnsent$",
		},
		{
			Name: "the tokens are not counted while some are withheld", File: "audit.go",
			Old:    "whole.RemoveAll(in.Withheld)",
			New:    "if in.Withheld.Len() > 0 {\n\t\treturn nil\n\t}",
			Caught: "while another is withheld", By: "^TestStrikes$",
		},
		{
			Name: "a message to a member of a newer view is lost", File: "pool.go",
			Old:    "p.early = append(p.early, one...)",
			New:    "_ = one",
			Caught: "want the baton", By: "^TestEarly$",
		},
		{
			Name: "home is not told since when tickets are unknown", File: "epoch.go",
			Old:    "\tr.Bounds = p.cfg.Memory.unknown.Message(now)\n",
			New:    "",
			Caught: "want one at", By: "^TestUnknownTicketsAndAnotherHome$",
		},
		{
			Name: "a call that comes again is another one", File: "tickets.go",
			Old:    "case t.UsedBy != \"\" && t.UsedBy != call:",
			New:    "case t.UsedBy != \"\":",
			Caught: "again: kgate: the ticket has been used", By: "^TestUseAgain$",
		},
		{
			Name: "a successor ends a hold by the wall clocks alone", File: "succession.go",
			Old:    "left = max(time.Duration(t.endsAt-wall), p.view.Wait+least)\n",
			New:    "left = max(time.Duration(t.endsAt-wall), 1)\n",
			Caught: "the hold ends after", By: "^TestHoldAtTheSuccessor$",
		},
		{
			Name: "a slot is kept for the time to live as if all clocks ran alike", File: "view.go",
			Old:    "return drift.Keep(term, closeTime)",
			New:    "return term + 0*drift.Keep(term, closeTime)",
			Caught: "kept for", By: "^TestSuccessorKeepsTheSlot$",
		},
		{
			Name: "a successor forgets that the lost gateway may not know yet", File: "succession.go",
			Old:    "left := p.view.Wait + KeepFor(t.TTL)",
			New:    "left := KeepFor(t.TTL)",
			Caught: "kept for", By: "^TestSuccessorKeepsTheSlot$",
		},
		{
			Name: "a sign after the hand-over is not written", File: "tickets.go",
			Old:    "recorded := t.silent || p.handingOver",
			New:    "recorded := t.silent",
			Caught: "after the sign", By: "^TestHandedOver$",
		},
		{
			Name: "unknown tickets run out before their gateways' leases have", File: "view.go",
			Old:    "return v.Wait + KeepFor",
			New:    "return KeepFor",
			Caught: "want one at", By: "^TestUnknownTicketsAndAnotherHome$",
		},
		{
			Name: "a gateway's tokens are not counted", File: "audit.go",
			Old:    "a.from[from] = h\n",
			New:    "",
			Caught: "not found", By: "^TestAudit$",
		},
		{
			Name: "tokens are spread while they are used", File: "audit.go",
			Old:    "&& used <= share/2",
			New:    "&& used <= 2*share",
			Caught: "while the tokens are used", By: "^TestSpread$",
		},
		{
			Name: "any gateway says how an epoch begins", File: "epoch.go",
			Old:    "case from != p.view.Home:",
			New:    "case from == 0:",
			Caught: "an answer from a gateway that is not home: <nil>", By: "^TestOnlyHomeAnswers$",
		},
		{
			Name: "any gateway has the tokens counted", File: "event.go",
			Old:    "if from == p.view.Home {",
			New:    "if true {",
			Caught: "node 2 counts tokens", By: "^TestOnlyHomeAnswers$",
		},
		{
			Name: "anybody ends a ticket that a request uses", File: "tickets.go",
			Old:    "if call != t.UsedBy {",
			New:    "if false {",
			Caught: "ends it: <nil>", By: "^TestUseAgain$",
		},
	}}.Run(t)
}
