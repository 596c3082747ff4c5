package library

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// The tests find these defects of package kgate and of proxy's middleware.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "a hijacked connection has no slot", File: "../../proxy/middleware.go",
			Old: "g.users.Add(1)\n", New: "",
			Caught: "a second slot of one", By: "^TestHijack$",
		},
		{
			Name: "a slot is given on before its connection is closed", File: "../../proxy/middleware.go",
			Old: "\tg.given.End()\n\tg.hold.slot.Release()", New: "\tg.hold.slot.Release()",
			Caught: "does not know that the one before is over", By: "^TestReverseProxyUpgrade$",
		},
		{
			Name: "a panic keeps its slot", File: "../../proxy/middleware.go",
			Old: "defer g.leave()", New: "defer func() { if g.rec.Aborted { panic(recover()) }; g.leave() }()",
			Caught: "FAIL: TestPanic|test timed out", By: "^TestPanic$", Args: []string{"-test.timeout=20s"},
		},
		{
			Name: "a loss does not end the handler's context", File: "../../proxy/middleware.go",
			Old: "cancel(why)", New: "_ = why",
			Caught: "never: the handler's context ends", By: "^TestLoss$",
		},
		{
			Name: "a loss leaves a hijacked connection open", File: "../../proxy/middleware.go",
			Old: "_ = c.Conn.Close() // its owner", New: "_ = c.Conn // its owner",
			Caught: "FAIL: TestLoss|panic: test timed out", By: "^TestLoss$", Args: []string{"-test.timeout=20s"},
		},
		{
			Name: "nobody looks whether a waiting client leaves", File: "../../proxy/downstream/disconnect.go",
			Old: "timer = time.AfterFunc(disconnectPoll,", New: "timer = time.AfterFunc(time.Hour,",
			Caught: "never: out of the line", By: "^TestWaitingPostLeaves$",
		},
		{
			Name: "nobody looks whether a client leaves that is served", File: "../../proxy/middleware.go",
			Old: "\tg.watch(cancel)\n", New: "\tg.watch(cancel)\n\tg.stopPoll()\n",
			Caught: "never: the handler hears", By: "^TestServedPostLeaves$",
		},
		{
			Name: "a hijacked connection is still looked at", File: "../../proxy/middleware.go",
			Old: "g.stopPoll() //", New: "//",
			Caught: "the request has ended: context canceled", By: "^TestServedPostIsWhole$",
		},
		{
			Name: "TLS hides the connection", File: "../../proxy/downstream/conn.go",
			Old: "conn = c.NetConn()", New: "return nil",
			Caught: "never: out of the line", By: "^TestWaitingPostLeaves$/^https$",
		},
		{
			Name: "a context of a slot outlives it", File: "../../slot.go",
			Old: "cancel(ErrLost)", New: "_ = ErrLost",
			Caught: "never: the context ends", By: "^TestLoss$",
		},
		{
			Name: "a body is closed before its connection", File: "../../transport.go",
			Old: "conn != nil {\n\t\t_ = conn.Close()", New: "conn != nil {\n\t\t_ = conn",
			Caught: "after the answer to /more the connection is closed: false", By: "^TestTransportBreaksOff$",
		},
		{
			Name: "a connection that others use is broken off", File: "../../transport.go",
			Old: "under.over()\n\t\t\t\tunder.Store(nil)", New: "under.over()",
			Caught: "after the answer to / the connection is closed: true", By: "^TestTransportBreaksOff$",
		},
		{
			Name: "an older Dial is forgotten", File: "../../fence.go",
			Old: "if dial != nil || older == nil {", New: "if true {",
			Caught: "0 connections", By: "^TestTransportBreaksOff$",
		},
		{
			Name: "the end of Start's context is that of the node", File: "../../internal/node/node.go",
			Old: "if !started() {", New: "if _ = started; ctx.Err() != nil {",
			Caught: "FAIL: TestStartContext|test timed out", By: "^TestStartContext$", Args: []string{"-test.timeout=20s"},
		},
		{
			Name: "Shutdown does not wait", File: "../../kgate.go",
			Old: "err := n.node.Drain(ctx)\n", New: "var err error\n",
			Caught: "it has not waited|the slot is lost|FAIL: TestShutdown", By: "^TestShutdown$",
		},
		{
			Name: "Shutdown leaves without a word", File: "../../kgate.go",
			Old: "n.node.LeaveCluster()\n", New: "",
			Caught: "FAIL: TestShutdownGivesBack", By: "^TestShutdownGivesBack$",
		},
		{
			Name: "a ticket is redeemed for any pool", File: "../../internal/gateway/redeem.go",
			Old: "case t.Pool != pool:", New: "case false:",
			Caught: "redeemed in another pool", By: "^TestTickets$",
		},
		{
			Name: "who a client is, is not the program's word", File: "../../proxy/client.go",
			Old: "if s.cfg.ClientAddr != nil {", New: "if false {",
			Caught: "never: the other client", By: "^TestClientAddr$",
		},
	}}.Run(t)
}
