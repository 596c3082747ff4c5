package cluster

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Real processes with these defects are found out.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{
		Program: "../../cmd/kgate", Variable: BinaryVariable, Soak: SoakVariable,
		Mutants: []mutant.Mutant{
			{
				Name: "a gateway that has met one asks nobody else", File: "../../chordring/serfring/join.go",
				Old:    "if pending := a.pending(answered); len(pending) > 0 {",
				New:    "if pending := a.pending(answered); len(pending) > 0 && alone {",
				By:     "^TestChainOfJoinLists$",
				Caught: `does not log "ready"`,
			},
			{
				Name: "a gateway says that it is ready when the pools are agreed", File: "../../internal/node/node.go",
				Old:    `if missing := n.AwaitReady(n.ctx); missing != "" {`,
				New:    `if n.ctx.Err() != nil {`,
				By:     "^TestReadyIsServed$",
				Caught: "is ready, but a request for",
			},
			{
				Name: "a successor takes it that whoever was between it and a lost gateway knew nothing", File: "../../replication/witnessed.go",
				Old:    "(s.Out == 0 || s.Out > began)",
				New:    "s.Out == 0",
				By:     "^TestTicketThatNobodyKnows$",
				Caught: "in flight beside the ticket",
			},
			{
				Name: "k is one more than the configuration says", File: "../../internal/node/pools.go",
				Old:    "membership.Pool{Name: p.Name, K: p.K, ",
				New:    "membership.Pool{Name: p.Name, K: p.K + 1, ",
				By:     "^TestAllClientsOnOneOfThree$",
				Caught: "FAIL: TestAllClientsOnOneOfThree",
			},
			{
				Name: "a pacer does not hear of a token that leaves", File: "../../internal/pace/account.go",
				Old:    "a.tokens, a.each = tokens, each",
				New:    "a.tokens, a.each = max(a.tokens, tokens), each",
				By:     "^TestRate$/^late_down$",
				Caught: "in a second, at most",
			},
			{
				Name: "the share of a token that has left does not come back with it", File: "../../internal/pace/account.go",
				Old:    "a.tokens, a.each = tokens, each",
				New:    "if a.tokens == 0 || a.each == 0 || tokens < a.tokens {\n\t\ta.tokens = tokens\n\t}\n\ta.each = each",
				By:     "^TestRate$/^late_down$",
				Caught: "of the rate",
			},
			{
				Name: "nobody asks for the shares of others", File: "../../internal/gateway/bandwidth.go",
				Old:    "if c.waiting > 0 || u.going() || now.Before(u.next) {",
				New:    "if true {",
				By:     "^TestRate$/^late_down$",
				Caught: "where it can be used after 2 s",
			},
		},
	}.Run(t)
}
