package gateway

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects of upstreams with a k of their own.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Mutants: []mutant.Mutant{
		{
			Name: "a ticket that is given back keeps its slot", File: "tickets.go",
			Old: "			p.again(s)\n", New: "			s.state = slotWaiting\n",
			Caught: ".", By: "^TestTicketGivenBack$",
		},
		{
			Name: "a ticket that is given back is behind others", File: "claims.go",
			Old: "	c.want(kmutex.EventReturn, s.request)\n", New: "	c.want(kmutex.EventRelease, s.request)\n	delete(c.slots, s.request)\n	c.makeDue(s)\n",
			Caught: "Granted:false", By: "^TestTicketGivenBack$",
		},
		{
			Name: "its gateway hears nothing of a dead upstream", File: "tickets.go",
			Old: "if err == nil && p.cfg.Suspect != nil {", New: "if err != nil && p.cfg.Suspect != nil {",
			Caught: ".", By: "^TestTicketGivenBack$",
		},
		{
			Name: "a gateway bars nothing", File: "upstream.go",
			Old: "		if p.isBarred(c) {\n			set.AddAll(c.Tokens)\n", New: "		if p.isBarred(c) && false {\n			set.AddAll(c.Tokens)\n",
			Caught: ".", By: "^TestAgain$",
		},
		{
			Name: "an upstream at k 0 is never forgotten", File: "../membership/views/forpool.go",
			Old: "|| spec.retiring(), Epoch", New: "|| false, Epoch",
			Caught: "it is not forgotten", By: "^TestUpstreamGoes$",
		},
		{
			Name: "batches in which nobody waits stay in the line", File: "../../kmutex/offer.go",
			Old: "		m.fx.Send(before.Node, Message{Kind: KindSkip", New: "		_ = append(m.fx.Messages, Envelope{}); _ = (Message{Kind: KindSkip",
			Caught: "after the slot was free", By: "^TestLineThatLeft$",
		},
		{
			Name: "batches that have left are kept until the baton comes", File: "../../kmutex/offer.go",
			Old: "	m.tell(left, Place{}) // nothing leads to it any more\n", New: "	_ = left\n",
			Caught: "keeps", By: "^TestLineThatLeft$",
		},
		{
			Name: "what rests at the end of the line is not offered again", File: "../../kmutex/offer.go",
			Old: "	m.retrying = false\n	m.binding.Return(m.offered, &m.fx)\n	m.offered = nil\n", New: "	m.retrying = false\n",
			Caught: ".", By: "^TestOfferedAgain$",
		},
		{
			Name: "a coordinator keeps what comes to a later batch of its own", File: "../../kmutex/offer.go",
			Old: "left = m.binding.Shed()\n", New: "left = nil\n",
			Caught: "shares are", By: "^TestLineOutOfReach$",
		},
		{
			Name: "a batch does not know which one is before it", File: "../../kmutex/offer.go",
			Old: "if b.Stood == told {", New: "if false {",
			Caught: "after the slot was free", By: "^TestLineThatLeft$",
		},
	}}.Run(t)
}
