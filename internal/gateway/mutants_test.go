package gateway

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "who wakes up is not asked for the lease", File: "slot.go",
			Old:    "if err = s.err; err == nil && !s.Valid() {",
			New:    "if err = s.err; false {",
			By:     "^TestWakesUpWithoutLease$",
			Caught: "granted without a lease",
		},
		{
			Name: "a lapsed lease is as good as another", File: "env.go",
			Old:    "return self != 0 && s.Node == self && e.now().Before(s.Until)",
			New:    "return self != 0 && s.Node == self",
			By:     "^TestLapsedLease$|^TestWakesUpWithoutLease$",
			Caught: "without a lease|after waking|before it is let in",
		},
		{
			Name: "what is in flight goes on after the lease", File: "ending.go",
			Old:    "\t\t\tif abort := s.takeAbort(); abort != nil {\n\t\t\t\taborts = append(aborts, abort)\n\t\t\t}\n",
			New:    "",
			By:     "^TestLapsedLease$",
			Caught: "deadlock|all goroutines",
		},
		{
			Name: "a gateway comes back before its requests have ended", File: "standing.go",
			Old:    "\tfor _, ch := range ended {\n",
			New:    "\tfor _, ch := range ended[:0] {\n",
			By:     "^TestComesBackWithNothingInFlight$",
			Caught: "came back",
		},
		{
			Name: "an orderly leave counts as a lost lease", File: "standing.go",
			Old:    "left := g.left()",
			New:    "left := false",
			By:     "^TestLeaveIsNoLoss$",
			Caught: "leases lost",
		},
		{
			Name: "a suspension while draining passes for a leave", File: "standing.go",
			Old:    "known && !gone.Leased",
			New:    "known && (!gone.Leased || true)",
			By:     "^TestLeaveIsNoLoss$",
			Caught: "leases lost",
		},
		{
			Name: "who gives up keeps the place", File: "slot.go",
			Old:    "\t\ts.Release()\n\t\treturn nil, context.Cause(ctx)\n",
			New:    "\t\treturn nil, context.Cause(ctx)\n",
			By:     "^TestClientsThatComeAndGo$",
			Caught: "FAIL",
		},
		{
			Name: "one more may wait", File: "claim.go",
			Old:    "case p.waiting >= p.cfg.QueueLimit:",
			New:    "case p.waiting > p.cfg.QueueLimit:",
			By:     "^TestRefusals$",
			Caught: "FAIL",
		},
		{
			Name: "a request on a ticket's slot uses all of its time to live", File: "redeem.go",
			Old:    "sent.Add(drift.Use(life(t)))",
			New:    "sent.Add(max(life(t), drift.Use(life(t))))",
			By:     "^TestRedeemedEndsInTime$",
			Caught: "before the slot is somebody else's",
		},
		{
			Name: "a use that nobody makes lasts", File: "redeem.go",
			Old:    "_ = end(ctx, id) // else",
			New:    "_, _ = ctx, end // else",
			By:     "^TestRedeemLeftTooSoon$",
			Caught: "the ticket has not ended",
		},
		{
			Name: "a call that is repeated has no name", File: "redeem.go",
			Old:    "call := rand.Text()",
			New:    "call := rand.Text()[:0]",
			By:     "^TestRedeemWithALostAnswer$",
			Caught: "has been used",
		},
		{
			Name: "work begins after Close", File: "env.go",
			Old:    "if e.ctx.Err() == nil {\n\t\te.wg.Go(do)",
			New:    "{\n\t\te.wg.Go(do)",
			By:     "^TestNothingBeginsAfterClose$",
			Caught: "begins after Close",
		},
		{
			Name: "what is left is promised as if all clocks ran alike", File: "tickets.go",
			Old:    "Left: t.Left(p.env.clock()),",
			New:    "Left: t.Expires - p.env.clock(),",
			By:     "^TestPromisesLess$",
			Caught: "is promised",
		},
		{
			Name: "BreakOff lets others in", File: "gateway.go",
			Old:    "\tg.draining.Store(true)\n\tg.broken.Store(true)",
			New:    "\tg.broken.Store(true)",
			By:     "^TestBreakOff$",
			Caught: "let in after BreakOff",
		},
		{
			Name: "BreakOff does not reach who asks later", File: "slot.go",
			Old:    "s.state == slotLost || s.state == slotGranted && s.pool.env.broken.Load()",
			New:    "s.state == slotLost",
			By:     "^TestBreakOff$",
			Caught: "who asks after BreakOff is not told",
		},
		{
			Name: "a closed gateway takes requests", File: "gateway.go",
			Old:    "\tg.draining.Store(true)\n\tg.end()",
			New:    "\tg.end()",
			By:     "^TestNobodyComesInAfterClose$",
			Caught: "let in after Close",
		},
		{
			Name: "a request on a ticket's slot is not in flight", File: "redeem.go",
			Old:    "\tp.redeemed[r] = false\n\tp.requests++\n",
			New:    "\tp.redeemed[r] = false\n\tp.requests += 0\n",
			By:     "^TestDrainWaitsForRedeemed$",
			Caught: "drained while",
		},
		{
			Name: "a request on a ticket's slot does not learn that it is lost", File: "ending.go",
			Old:    "\t\taborts = append(aborts, r.lose)\n",
			New:    "\t\taborts = append(aborts, func() { _ = r })\n",
			By:     "^TestRedeemedIsLostWithItsGateway$",
			Caught: "not told",
		},
		{
			Name: "a draining gateway redeems tickets", File: "redeem.go",
			Old:    "case p.env.draining.Load():",
			New:    "case false:",
			By:     "^TestDrainWaitsForRedeemed$",
			Caught: "redeemed while draining",
		},
		{
			Name: "who leaves before its place leaves its client's next one behind", File: "claims.go",
			Old:    "\t\t\tc.inLine--\n\t\t\tq.advance(c)\n\t\t}\n\t\treturn\n",
			New:    "\t\t\tc.inLine--\n\t\t}\n\t\treturn\n",
			By:     "^TestLeavesBeforeItsPlace$",
			Caught: "is not in",
		},
		{
			Name: "another goroutine takes in waiting requests", File: "slot.go",
			Old:    "\tif err := p.queue(&s.claim, req, nil); err != nil {\n\t\treturn nil, err\n\t}\n\tif others {",
			New:    "\tqueued := make(chan error, 1)\n\tgo func() { queued <- p.queue(&s.claim, req, nil) }()\n\tif err := <-queued; err != nil {\n\t\treturn nil, err\n\t}\n\tif others {",
			By:     "^TestArrivalIsTheCallers$",
			Caught: "another goroutine looks at the clock",
		},
		{
			Name: "a client's bound is the other one", File: "claim.go",
			Old:    "limit = bound.Limit",
			New:    "limit = p.cfg.ClientLimit",
			By:     "^TestClientBoundIsTold$",
			Caught: "the bound on tickets is told",
		},
		{
			Name: "a line is asked for as long as the first one stays", File: "position.go",
			Old:    "range p.wholeLine() {\n",
			New:    "range p.wholeLine() {\n\t\t\tif ctx.Err() != nil {\n\t\t\t\tbreak\n\t\t\t}\n",
			By:     "^TestPositionForAll$",
			Caught: "behind 3",
		},
		{
			Name: "a pool that is refused is refused once", File: "pending.go",
			Old:    "if age > pendingForget {",
			New:    "if age > pendingFor {",
			By:     "^TestPendingPoolStaysRefused$",
			Caught: "after 10s",
		},
		{
			Name: "a draining gateway takes requests", File: "gateway.go",
			Old:    "\tg.draining.Store(true)\n\tpools := g.all()",
			New:    "\tpools := g.all()",
			By:     "^TestRefusals$",
			Caught: "FAIL|timed out",
		},
	}}.Run(t)
}
