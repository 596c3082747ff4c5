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
			Name: "what is in flight goes on after the lease", File: "standing.go",
			Old:    "\t\t\tif s.abort != nil {\n\t\t\t\taborts = append(aborts, s.abort)\n\t\t\t}\n",
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
			Name: "a call that is repeated has no name", File: "redeem.go",
			Old:    "Call: rand.Text()}",
			New:    "Call: rand.Text()[:0]}",
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
			Name: "a draining gateway takes requests", File: "gateway.go",
			Old:    "\tg.draining.Store(true)\n",
			New:    "",
			By:     "^TestRefusals$",
			Caught: "FAIL",
		},
	}}.Run(t)
}
