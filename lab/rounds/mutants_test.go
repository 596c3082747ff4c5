package rounds_test

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// What had to be closed in package quorum is needed: without it the fuzz finds two
// owners, somebody who is never served, or a panic. Package quorum has the rest.
func TestMutantsAreCaught(t *testing.T) {
	const bad = "let in beside another|not served|panic"
	at := func(file string) string { return "../protocol/quorum/" + file }
	mutant.Suite{
		By: "^TestFuzz$", Args: []string{"-rounds.seeds=1000"},
		Mutants: []mutant.Mutant{
			{
				Name: "half of the replicas are enough", File: at("fleet.go"), Caught: bad,
				Old: "opt.Replicas/2 + 1", New: "opt.Replicas / 2",
			},
			{
				Name: "a RELEASE goes with the TOKEN", File: at("e2e.go"), Caught: bad,
				Old: "	if len(o.line) > 0 {\n", New: "	if len(o.line) > 0 {\n		f.clearAll(at, resource, o.epoch)\n",
			},
			{
				Name: "a loser that came before the winner is in no line", File: at("e2e.go"), Caught: bad,
				Old: "		if !q.is(m.req) {\n", New: "		if false {\n",
			},
			{
				Name: "ENQUEUE to a former owner is lost", File: at("e2e.go"), Caught: bad,
				Old: "		f.send(at, p.successor, m)\n", New: "",
			},
			{
				Name: "the last owner does not answer", File: at("e2e.go"), Caught: bad,
				Old: "		f.send(at, m.req.Node, message{kind: retry, key: m.key, req: m.req, over: p.ended})\n", New: "",
			},
			{
				Name: "an intermediate node names the requester", File: at("none2e.go"), Caught: bad,
				Old: "vote: e.holder}", New: "vote: m.req, sure: true}",
			},
			{
				Name: "YIELD goes to those only who voted for it", File: at("client.go"), Caught: bad,
				Old: " || f.opt.Form == NonEndToEnd {", New: " {",
			},
			{
				Name: "nobody yields", File: at("client.go"), Caught: bad,
				Old: "if !c.yielding || c.in ||", New: "if true || c.in ||",
			},
			{
				Name: "a vote from before the YIELD counts", File: at("client.go"), Caught: bad,
				Old: "m.vote.Round < v.floor", New: "false",
			},
			{
				Name: "a replica that was reset votes at once", File: at("membership.go"), Caught: bad,
				Old: "if !f.opt.Eager {", New: "if false {",
			},
			{
				Name: "epochs begin anew after a reset", File: at("e2e.go"), Caught: bad,
				Old: "uint64(f.host.Now().Microseconds())<<handOvers", New: "0",
			},
			{
				Name: "the lease begins anew with the token", File: at("e2e.go"), Caught: bad,
				Old: "renewed: m.renewed, line", New: "renewed: f.host.Now(), line",
			},
			{
				Name: "a vote never runs out", File: at("replica.go"), Caught: bad,
				Old: "f.host.Now() >= r.until", New: "false",
			},
			{
				Name: "nobody asks again", File: at("client.go"), Caught: bad,
				Old: "	f.ask(at, resource, c)\n	if f.opt.Lease > 0 {\n		f.askLater(at, resource, c)\n	}\n}", New: "}",
			},
			{
				Name: "owners do not renew", File: at("client.go"), Caught: bad,
				Old: "	if !c.in {\n		return\n	}\n	if f.opt.Form == EndToEnd {\n		f.announce", New: "	if true {\n		return\n	}\n	if f.opt.Form == EndToEnd {\n		f.announce",
			},
		},
	}.Run(t)
}
