package fairk

import (
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/sim"
)

// A pool's epoch moves on with the view. Then every gateway freezes the pool,
// reports to its home what it runs and who waits, and goes on as home's install
// tells it. Requests keep their slots and places meanwhile. All of it can begin
// anew at any point.

// epochs is a gateway's part in forming them.
type epochs struct {
	// mine is what this gateway has reported for the epoch of the view, until
	// it is installed.
	mine *kmutex.Report
	// At home: who has to report, and what came of it.
	awaited  []kmutex.Node
	reports  []kmutex.Report
	installs map[kmutex.Node]*kmutex.Install
	forming  uint64 // the epoch of which this gateway is home and that is not planned
	// unplanned are epochs that this gateway was home of and never planned.
	unplanned []uint64
}

// report goes to home, answer comes back. They are streams of their own and not
// the links'.
type report struct {
	to     kmutex.Node
	report kmutex.Report
}

type answer struct {
	to    kmutex.Node
	epoch uint64
	// install; nil: home does not form that epoch (yet), ask again.
	install *kmutex.Install
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
		g.enter()
	}
	stash := g.stash
	g.stash = nil
	for _, p := range stash {
		g.receive(p)
	}
	return true
}

// enter brings the pool toward the view's epoch.
func (g *Gateway) enter() {
	v := g.view
	if g.forming != 0 {
		g.unplanned = append(g.unplanned, g.forming)
	}
	g.mine, g.awaited, g.reports, g.installs, g.forming = nil, nil, nil, nil, 0
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
	mine := *fx.Report
	mine.Waiting = g.restamp(mine.Waiting)
	mine.Unplanned = slices.Clone(g.unplanned)
	g.mine = &mine
	if v.Home == g.self {
		g.forming = v.Epoch
		for _, m := range v.Members {
			if uint64(m.Node) <= v.Began {
				g.awaited = append(g.awaited, m.Node)
			}
		}
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
	epoch := r.report.Epoch
	forming := r.to == g.self && g.self != 0 && epoch == g.view.Epoch && g.view.Home == g.self && g.mine != nil || g.installs != nil && epoch == g.view.Epoch
	if !forming {
		g.cfg.Host.Send(g.cfg.Index, from, "answer", &answer{to: r.report.Node, epoch: epoch})
		return
	}
	g.admit(r.report)
}

// admit adds a report to the epoch's, at home; with the last one it plans the
// installs. One that comes again after that is answered again.
func (g *Gateway) admit(r kmutex.Report) {
	i := slices.Index(g.awaited, r.Node)
	if i < 0 {
		if in := g.installs[r.Node]; in != nil {
			g.send(r.Node, in)
		}
		return
	}
	g.awaited = slices.Delete(g.awaited, i, i+1)
	g.reports = append(g.reports, r)
	if len(g.awaited) > 0 {
		return
	}
	v := g.view
	g.forming = 0
	installs, err := kmutex.Reform(kmutex.Formation{Epoch: v.Epoch, K: v.K, Home: v.Home, Owed: len(v.Owed) > 0}, g.reports)
	if err != nil {
		g.fail(fmt.Errorf("home %d cannot plan epoch %d: %w", g.self, v.Epoch, err))
		return
	}
	g.installs = make(map[kmutex.Node]*kmutex.Install, len(installs))
	reports := g.reports
	for i, in := range installs {
		g.installs[reports[i].Node] = in
	}
	for _, r := range reports {
		g.send(r.Node, g.installs[r.Node])
	}
}

// send gives a node its install.
func (g *Gateway) send(to kmutex.Node, in *kmutex.Install) {
	if to == g.self {
		g.onAnswer(&answer{to: to, epoch: in.Epoch, install: in})
		return
	}
	if m, known := g.view.Member(to); known {
		g.cfg.Host.Send(g.cfg.Index, m.Host, "answer", &answer{to: to, epoch: in.Epoch, install: in})
	}
}

func (g *Gateway) onAnswer(a *answer) {
	if a.to != g.self || g.mine == nil || a.epoch != g.mine.Epoch || g.view.Epoch != a.epoch {
		return
	}
	if a.install == nil {
		g.cfg.Host.After(g.cfg.Index, retry, sim.Timer{Kind: TimerReport, Arg: a.epoch})
		return
	}
	g.install(a.install)
}

// install begins an epoch.
func (g *Gateway) install(in *kmutex.Install) {
	g.mine = nil
	g.unplanned = nil
	g.step(kmutex.Event{Kind: kmutex.EventInstall, Install: in})
}
