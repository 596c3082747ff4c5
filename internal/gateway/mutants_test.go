package gateway

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each of these defects is found by the test that is named with it.
func TestMutantsAreCaught(t *testing.T) {
	mutant.Suite{Args: []string{"-test.timeout=1m"}, Mutants: []mutant.Mutant{
		{
			Name: "messages that could share a write are sent alone", File: "effects.go",
			Old:    "p.out.send(fx.Messages, p.waiting > 1)",
			New:    "p.out.send(fx.Messages, false)",
			By:     "^TestSendsAlone$",
			Caught: "want 2 and 1",
		},
		{
			Name: "a message that somebody waits for is left to another goroutine", File: "effects.go",
			Old:    "p.out.send(fx.Messages, p.waiting > 1)",
			New:    "p.out.send(fx.Messages, p.waiting > 0)",
			By:     "^TestSendsAlone$",
			Caught: "were sent alone",
		},
		{
			Name: "tickets that are not read yet are unknown", File: "ticketcall.go",
			Old: "spec.Tickets > 0 {", New: "spec.Tickets == 0 {",
			By: "^TestNotReadIsNotUnknown$", Caught: "before the tickets are read",
		},
		{
			Name: "tickets of a pool that is not followed yet are unknown", File: "ticketcall.go",
			Old: "spec.Tickets > 0 && g.pool(spec.Name) == nil", New: "spec.Tickets > 0 && false",
			By: "^TestNotReadIsNotUnknown$", Caught: "before this gateway has a part",
		},
		{
			Name: "a gateway that was replaced is still waited for", File: "ticketcall.go",
			Old: "return now == successor && g.entitled", New: "return (now == successor || true) && g.entitled",
			By: "^TestRedeemWithAPausedGateway$", Caught: "after 5s",
		},
		{
			Name: "a wait without end ends at once", File: "ticketcall.go",
			Old: "return max(c.Wait, c.Wait+ticketPatience)", New: "return c.Wait + ticketPatience",
			By: "^TestWaitWithoutEnd$", Caught: "does not answer",
		},
		{
			Name: "a silent gateway is waited for without a bound", File: "ticketcall.go",
			Old: "WithTimeout(ctx, c.patience())", New: "WithTimeout(ctx, time.Hour)",
			By: "^TestRedeemWithAPausedGateway$", Caught: "after 1h",
		},
		{
			Name: "the first ticket is waited for after the lease", File: "tickets.go",
			Old: "err := p.views.UseTickets(leased,", New: "_ = leased\n\t\terr := p.views.UseTickets(ctx,",
			By: "^TestFirstTicketWithoutALease$", Caught: "after 1m",
		},
		{
			Name: "the end of a ticket is answered before a successor knows", File: "tickets.go",
			Old: "_ = p.awaitSynced(ctx) //", New: "_ = ctx //",
			By: "^TestTicketEndsAtItsSuccessors$", Caught: "tickets of the first|the answer takes",
		},
		{
			Name: "a ticket may live longer than is agreed", File: "tickets.go",
			Old: "&& ttl <= cmp.Or(p.core.View().MaxTTL, admission.MaxTTL)", New: "&& (ttl > 0 || ttl <= cmp.Or(p.core.View().MaxTTL, admission.MaxTTL))",
			By: "^TestTicketTTLIsAgreed$", Caught: "agreed, want",
		},
		{
			Name: "a ticket of which nobody was told stays", File: "ticket.go",
			Old: "_ = tickets.finish(ticketCall{ID: t.ID})", New: "_ = ticketCall{}",
			By: "^TestClientLeavesBeforeItsTicket$", Caught: "the next ticket waits",
		},
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
			Name: "what is in flight goes on after the lease", File: "claims.go",
			Old:    "\t\t\taborts = append(aborts, abort)\n",
			New:    "",
			By:     "^TestLapsedLease$",
			Caught: "deadlock|all goroutines",
		},
		{
			Name: "a ticket gets a whole time to live with each restart", File: "ticket.go",
			Old:    "p.apply(p.core.HandOver(p.clock()))",
			New:    "",
			By:     "^TestTicketOutlivesNoRestart$",
			Caught: "an abandoned ticket .* ended after|a hold of .* ended after",
		},
		{
			Name: "a gateway comes back before its requests have ended", File: "standing.go",
			Old:    "untilIdle(f.ctx, ended)",
			New:    "untilIdle(f.ctx, ended[:0])",
			By:     "^TestComesBackWithNothingInFlight$",
			Caught: "came back",
		},
		{
			Name: "an orderly leave counts as a lost lease", File: "standing.go",
			Old:    "left := f.left()",
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
			Name: "one more may wait", File: "pool.go",
			Old:    "case p.waiting >= p.limits.QueueLimit:",
			New:    "case p.waiting > p.limits.QueueLimit:",
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
			Old:    "r.endTicket() // the slot may",
			New:    "_ = r // the slot may",
			By:     "^TestRedeemLeftTooSoon$",
			Caught: "the ticket has not ended",
		},
		{
			Name: "a call that is repeated has no name", File: "redeem.go",
			Old:    "call := rand.Text()",
			New:    "call := rand.Text()[:0]",
			By:     "^TestRedeemWithALostAnswer$",
			Caught: "name is empty",
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
			Old:    "Left: t.Left(p.clock()),",
			New:    "Left: t.Expires - p.clock(),",
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
			Old:    "s.state == slotLost || s.state == slotGranted && s.pool.broken.Load()",
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
			Name: "a request on a ticket's slot is not in flight", File: "claims.go",
			Old:    "\tc.guests[g] = struct{}{}\n\tc.requests++\n",
			New:    "\tc.guests[g] = struct{}{}\n\tc.requests += 0\n",
			By:     "^TestDrainWaitsForRedeemed$",
			Caught: "drained while",
		},
		{
			Name: "a request on a ticket's slot does not learn that it is lost", File: "claims.go",
			Old:    "\t\taborts = append(aborts, g.lose)\n",
			New:    "\t\taborts = append(aborts, func() { _ = g })\n",
			By:     "^TestRedeemedIsLostWithItsGateway$",
			Caught: "not told",
		},
		{
			Name: "a draining gateway redeems tickets", File: "redeem.go",
			Old:    "case p.draining.Load():",
			New:    "case false:",
			By:     "^TestDrainWaitsForRedeemed$",
			Caught: "redeemed while draining",
		},
		{
			Name: "who leaves before its place leaves its client's next one behind", File: "queue.go",
			Old:    "\t\t\tc.inLine--\n\t\t\tq.advance(c)\n\t\t}\n\t\treturn\n",
			New:    "\t\t\tc.inLine--\n\t\t}\n\t\treturn\n",
			By:     "^TestLeavesBeforeItsPlace$",
			Caught: "is not in",
		},
		{
			Name: "another goroutine takes in waiting requests", File: "slot.go",
			Old:    "\tif err := p.enqueue(&s.claim, req, nil); err != nil {\n\t\treturn err\n\t}\n\tif others {",
			New:    "\tqueued := make(chan error, 1)\n\tgo func() { queued <- p.enqueue(&s.claim, req, nil) }()\n\tif err := <-queued; err != nil {\n\t\treturn err\n\t}\n\tif others {",
			By:     "^TestArrivalIsTheCallers$",
			Caught: "another goroutine looks at the clock",
		},
		{
			Name: "a client's bound is the other one", File: "pool.go",
			Old:    "limit = bound.Limit",
			New:    "limit = p.limits.ClientLimit",
			By:     "^TestClientBoundIsTold$",
			Caught: "the bound on tickets is told",
		},
		{
			Name: "a line is asked for as long as the first one stays", File: "position.go",
			Old:    "range wholeLine(p) {\n",
			New:    "range wholeLine(p) {\n\t\t\tif ctx.Err() != nil {\n\t\t\t\tbreak\n\t\t\t}\n",
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
