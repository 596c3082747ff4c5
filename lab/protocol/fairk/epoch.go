package fairk

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
	"github.com/kgate/kgate/replication"
)

// A pool's epoch moves on with the view. Then every gateway freezes the pool,
// reports to its home what it runs and who waits, and goes on as home's install
// tells it. Requests keep their slots and places meanwhile. All of it can begin
// anew at any point.

// epochs is a gateway's part in forming them.
type epochs struct {
	// mine is what this gateway has reported for the epoch of the view, until
	// it is installed.
	mine *replication.EpochReport
	// At home: the forming of the view's epoch, and who waits for it.
	forming *replication.Forming
	asked   []kmutex.Node
	// unplanned are epochs that this gateway was home of and never planned.
	unplanned []uint64
}

// report goes to home, answer comes back. They are streams of their own and not
// the links'.
type report struct {
	to     kmutex.Node
	report replication.EpochReport
}

type answer struct {
	to    kmutex.Node
	epoch uint64
	// plan; nil: home does not form that epoch (yet), ask again.
	plan *replication.EpochAnswer
}

// Kind names the message.
func (*report) Kind() string { return "report" }

// String formats the message for traces.
func (r *report) String() string {
	return fmt.Sprintf("report to n%d: epoch %d, %d running, %d waiting turns", r.to, r.report.Epoch, len(r.report.Running), len(r.report.Waiting))
}

// Kind names the message.
func (*answer) Kind() string { return "answer" }

// String formats the message for traces.
func (a *answer) String() string {
	return fmt.Sprintf("answer to n%d: epoch %d, planned: %t", a.to, a.epoch, a.plan != nil)
}

// retry is the pause before home is asked again.
const retry = 50 * time.Millisecond

// Follow takes over a newer view. It reports whether this incarnation is in it.
func (g *Gateway) Follow(v *View) bool {
	if v.Index <= g.view.Index {
		_, in := g.view.Member(g.self)
		return in
	}
	before := g.view.Epoch
	g.view = v
	me, in := v.Named(g.cfg.Index)
	if in = in && me.Boot == g.cfg.Boot; !in {
		return false
	}
	if g.self == 0 {
		g.self, before = me.Node, 0
		g.machine = kmutex.New(g.self, g.binding())
	}
	if v.Epoch != before {
		g.enter(before)
	}
	stash := g.stash
	g.stash = nil
	for _, p := range stash {
		if p.from == g.self {
			g.send(p)
		} else {
			g.receive(p)
		}
	}
	return true
}

// enter brings the pool from one epoch toward the view's.
func (g *Gateway) enter(before uint64) {
	v := g.view
	if g.forming != nil && !g.forming.Planned() {
		g.unplanned = append(g.unplanned, before)
	}
	g.mine, g.forming, g.asked = nil, nil, nil
	// Nobody had the pool before its first epoch, and who joins a later one has
	// nothing to report.
	if v.Epoch == 1 || uint64(g.self) > v.Began {
		in := kmutex.Genesis(v.Epoch, v.K, v.Home, g.self)
		if g.begin != nil {
			g.begin(in)
		}
		g.install(in)
		return
	}
	fx, err := g.machine.Step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: v.Epoch, K: v.K})
	if err != nil {
		g.fail(fmt.Errorf("node %d cannot enter epoch %d: %w", g.self, v.Epoch, err))
		return
	}
	for _, t := range fx.Trace {
		g.watch(t)
	}
	g.mine = &replication.EpochReport{Report: *fx.Report}
	g.mine.Waiting = g.restamp(g.mine.Waiting)
	g.mine.Unplanned = slices.Clone(g.unplanned)
	if v.Home == g.self {
		g.forming = replication.NewForming(v.formation(), v.founders(), nil)
	}
	g.askHome()
}

// restamp splits the waiting tickets into turns by their times of arrival, as
// finely as the line is: to one ask interval. A ticket that is known no more has
// been cancelled; its cancel is kept aside in the machine.
func (g *Gateway) restamp(turns []kmutex.ReportedTurn) []kmutex.ReportedTurn {
	var out []kmutex.ReportedTurn
	for _, turn := range turns {
		for _, t := range turn.Tickets {
			since, known := g.cfg.Since(protocol.Ticket(t))
			switch n := len(out); {
			case !known && n == 0:
				out = append(out, kmutex.ReportedTurn{})
			case known && (n == 0 || since-out[n-1].Stamp > int64(g.cfg.Ask)):
				out = append(out, kmutex.ReportedTurn{Stamp: since})
			}
			last := &out[len(out)-1]
			last.Tickets = append(last.Tickets, t)
		}
	}
	return out
}

// askHome reports to home, or takes the report in itself.
func (g *Gateway) askHome() {
	home, _ := g.view.Member(g.view.Home)
	if home.Node == g.self {
		g.admit(*g.mine)
		return
	}
	g.cfg.Host.Send(g.cfg.Index, home.Host, "report", &report{to: home.Node, report: *g.mine})
}

func (g *Gateway) reportAgain(epoch uint64) {
	if g.mine != nil && g.mine.Epoch == epoch {
		g.askHome()
	}
}

func (g *Gateway) onReport(from int, r *report) {
	if r.to != g.self || g.forming == nil || r.report.Epoch != g.view.Epoch {
		g.cfg.Host.Send(g.cfg.Index, from, "answer", &answer{to: r.report.Node, epoch: r.report.Epoch})
		return
	}
	g.admit(r.report)
}

// admit adds a report to the epoch's, at home; with the last one all get their
// answers. One that comes again after that is answered again.
func (g *Gateway) admit(r replication.EpochReport) {
	if err := g.forming.Admit(r); err != nil {
		g.fail(fmt.Errorf("home %d cannot plan epoch %d: %w", g.self, r.Epoch, err))
		return
	}
	g.asked = append(g.asked, r.Node)
	if !g.forming.Planned() {
		return
	}
	asked := g.asked
	g.asked = nil
	for _, n := range asked {
		g.reply(n, &answer{to: n, epoch: r.Epoch, plan: g.forming.Answer(n)})
	}
}

func (g *Gateway) reply(to kmutex.Node, a *answer) {
	if to == g.self {
		g.onAnswer(a)
		return
	}
	if m, known := g.view.Member(to); known {
		g.cfg.Host.Send(g.cfg.Index, m.Host, "answer", a)
	}
}

func (g *Gateway) onAnswer(a *answer) {
	switch {
	case a.to != g.self || g.mine == nil || a.epoch != g.mine.Epoch:
	case a.plan == nil:
		g.cfg.Host.After(g.cfg.Index, retry, sim.Timer{Kind: TimerReport, Arg: a.epoch})
	default:
		g.install(a.plan.Install)
	}
}

// install begins an epoch.
func (g *Gateway) install(in *kmutex.Install) {
	g.mine, g.unplanned, g.epoch = nil, nil, in.Epoch
	g.step(kmutex.Event{Kind: kmutex.EventInstall, Install: in})
}
