package kmutex_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/kmutex/invariants"
)

// TestGolden replays the traces in testdata. Rewrite them with
// go test ./kmutex -run TestGolden -rewrite, and read the difference.
//
//	genesis nodes=N k=K binding=early|late [alone]   node 1 is home; each token is a class of its own
//	paper nodes=N k=K root=R                 early; tokens at nodes 1..k, root and coordinator R
//	acquire NODE...                          next request of each node
//	release|cancel|return NODE TICKET
//	ask-due|retry-due NODE
//	bar NODE [TOKEN...]                      the tokens that the node cannot use
//	deliver [KIND] [to=N] [from=N]           the first message in flight that fits
//	deliver-all                              in order of sending, up to quiet
//	adopt NODE waiting|running               at the next change, a request that a lost node left
//	change epoch=E home=H [k=K] [without=N] [owed]   freeze every node but those lost, plan, install
//	state
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		g := &golden{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return g.run(t, d)
		})
	})
}

type golden struct {
	early    bool
	alone    bool
	k        int
	machines []*kmutex.Machine
	requests []kmutex.Request
	flight   []kmutex.Envelope
	asking   []bool
	lost     []bool
	adopted  map[int][]string
	out      strings.Builder
}

func (g *golden) run(t *testing.T, d *datadriven.TestData) string {
	g.out.Reset()
	switch d.Cmd {
	case "genesis", "paper":
		g.start(t, d)
	case "acquire":
		for _, arg := range d.CmdArgs {
			i := atoi(t, arg.Key) - 1
			g.requests[i]++
			g.step(i, kmutex.Event{Kind: kmutex.EventAcquire, Request: g.requests[i]})
		}
	case "release", "cancel", "return":
		kind := map[string]kmutex.EventKind{"release": kmutex.EventRelease, "cancel": kmutex.EventCancel, "return": kmutex.EventReturn}[d.Cmd]
		e := kmutex.Event{Kind: kind, Request: request(t, d.CmdArgs[1].Key)}
		g.step(atoi(t, d.CmdArgs[0].Key)-1, e)
	case "ask-due":
		g.step(atoi(t, d.CmdArgs[0].Key)-1, kmutex.Event{Kind: kmutex.EventAskDue})
	case "retry-due":
		g.step(atoi(t, d.CmdArgs[0].Key)-1, kmutex.Event{Kind: kmutex.EventRetryDue})
	case "bar":
		var barred kmutex.TokenSet
		for _, arg := range d.CmdArgs[1:] {
			barred.Add(kmutex.Token(atoi(t, arg.Key)))
		}
		g.step(atoi(t, d.CmdArgs[0].Key)-1, kmutex.Event{Kind: kmutex.EventBar, Barred: barred})
	case "deliver":
		g.deliver(t, d)
	case "deliver-all":
		for len(g.flight) > 0 {
			g.take(0)
		}
	case "adopt":
		n := atoi(t, d.CmdArgs[0].Key)
		g.adopted[n] = append(g.adopted[n], d.CmdArgs[1].Key)
	case "change":
		g.change(t, d)
	case "state":
		g.state()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	if d.Cmd != "genesis" && d.Cmd != "paper" && !slices.ContainsFunc(g.machines, func(m *kmutex.Machine) bool { return m.State().Frozen }) {
		g.check(t, d)
	}
	return g.out.String()
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatalf("%q is no number", s)
	}
	return n
}

// request reads a request; adopted/E.I is the I-th request that was adopted in epoch E.
func request(t *testing.T, s string) kmutex.Request {
	t.Helper()
	var epoch uint64
	var i int
	if _, err := fmt.Sscanf(s, "adopted/%d.%d", &epoch, &i); err == nil {
		return kmutex.AdoptedRequest(epoch, i)
	}
	return kmutex.Request(atoi(t, s))
}

func (g *golden) start(t *testing.T, d *datadriven.TestData) {
	var n int
	var binding string
	d.ScanArgs(t, "nodes", &n)
	d.ScanArgs(t, "k", &g.k)
	root := 1
	if d.Cmd == "paper" {
		binding = "early"
		d.ScanArgs(t, "root", &root)
	} else {
		d.ScanArgs(t, "binding", &binding)
	}
	*g = golden{
		k: g.k, early: binding == "early", alone: d.HasArg("alone"), requests: make([]kmutex.Request, n), asking: make([]bool, n),
		lost: make([]bool, n), adopted: make(map[int][]string),
	}
	for i := range n {
		self := kmutex.Node(i + 1)
		var b kmutex.Binding = new(coordinator.Late)
		if g.early {
			b = new(coordinator.Early)
		}
		g.machines = append(g.machines, kmutex.New(self, b))
		s := scope{k: g.k}
		if g.alone {
			s.barring = 1
		}
		in := kmutex.Genesis(s.change(), self)
		if d.Cmd == "paper" {
			in = paperInstall(self, g.k, kmutex.Node(root))
		}
		g.step(i, kmutex.Event{Kind: kmutex.EventInstall, Install: in})
	}
	g.out.Reset()
}

// paperInstall is the paper's initial state with tokens at nodes 1..k, as in
// its figure 1.
func paperInstall(self kmutex.Node, k int, root kmutex.Node) *kmutex.Install {
	in := &kmutex.Install{Epoch: 1, K: k, Home: root, Holder: root, Parent: root}
	if int(self) <= k {
		in.Free.Add(kmutex.Token(self - 1))
	}
	if self == root {
		in.Parent = 0
		for q := range k {
			in.Tails = append(in.Tails, kmutex.SeatOf(kmutex.Node(q+1), kmutex.Token(q)))
		}
	}
	return in
}

func (g *golden) step(i int, e kmutex.Event) {
	fx, err := g.machines[i].Step(&e)
	if err != nil {
		fmt.Fprintf(&g.out, "error: %v\n", err)
	}
	for _, t := range fx.Trace {
		fmt.Fprintf(&g.out, "%d: %v\n", i+1, t)
	}
	for _, m := range fx.Messages {
		fmt.Fprintf(&g.out, "   %v\n", m)
	}
	g.flight = append(g.flight, fx.Messages...)
	if e.Kind == kmutex.EventAskDue {
		g.asking[i] = false
	}
	g.asking[i] = g.asking[i] || fx.AskTimer
}

func (g *golden) deliver(t *testing.T, d *datadriven.TestData) {
	for j, m := range g.flight {
		fits := true
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "to":
				fits = fits && m.To == kmutex.Node(atoi(t, arg.Vals[0]))
			case "from":
				fits = fits && m.From == kmutex.Node(atoi(t, arg.Vals[0]))
			default:
				fits = fits && m.Message.Kind.String() == arg.Key
			}
		}
		if fits {
			g.take(j)
			return
		}
	}
	d.Fatalf(t, "no such message in flight: %v", g.flight)
}

func (g *golden) take(j int) {
	m := g.flight[j]
	g.flight = slices.Delete(g.flight, j, j+1)
	if g.lost[m.To-1] {
		fmt.Fprintf(&g.out, "lost: %v\n", m)
		return
	}
	g.step(int(m.To)-1, kmutex.Event{Kind: kmutex.EventReceive, From: m.From, Message: &m.Message})
}

// change lets the pool enter an epoch without one of its nodes, or with all.
func (g *golden) change(t *testing.T, d *datadriven.TestData) {
	var epoch, home, without int
	d.ScanArgs(t, "epoch", &epoch)
	d.ScanArgs(t, "home", &home)
	d.MaybeScanArgs(t, "k", &g.k)
	if d.MaybeScanArgs(t, "without", &without); without != 0 {
		g.lost[without-1] = true
	}
	var reports []kmutex.Report
	for i, m := range g.machines {
		if g.lost[i] {
			continue
		}
		fx, err := m.Step(&kmutex.Event{Kind: kmutex.EventFreeze, Epoch: uint64(epoch), K: g.k})
		if err != nil {
			d.Fatalf(t, "freeze: %v", err)
		}
		r := *fx.Report
		for j := range r.Waiting {
			r.Waiting[j].Stamp = int64(r.Waiting[j].Requests[0])
		}
		for j, kind := range g.adopted[i+1] {
			inherit(&r, kmutex.AdoptedRequest(uint64(epoch), j), kmutex.Token(j), kind)
		}
		reports = append(reports, r)
	}
	clear(g.adopted)
	installs, err := kmutex.PlanEpoch(kmutex.EpochChange{Epoch: uint64(epoch), K: g.k, Home: kmutex.Node(home), Owed: d.HasArg("owed")}, reports)
	if err != nil {
		d.Fatalf(t, "plan: %v", err)
	}
	for j, in := range installs {
		g.step(int(reports[j].Node)-1, kmutex.Event{Kind: kmutex.EventInstall, Install: in})
	}
}

// inherit puts a request of a lost node, older than all others, into a report.
func inherit(r *kmutex.Report, request kmutex.Request, q kmutex.Token, kind string) {
	if kind == "running" {
		r.Running = append(r.Running, kmutex.Grant{Request: request, Token: q, Serial: 77})
		return
	}
	r.Waiting = append(r.Waiting, kmutex.ReportedBatch{Stamp: -1, Requests: []kmutex.Request{request}})
}

func (g *golden) check(t *testing.T, d *datadriven.TestData) {
	w := invariants.World{K: g.k, Early: g.early, AskPending: slices.Contains(g.asking, true)}
	for i, m := range g.machines {
		if !g.lost[i] {
			w.Nodes = append(w.Nodes, m.State())
		}
	}
	w.Tokens, w.Withheld = w.Nodes[0].Tokens, w.Nodes[0].Withheld
	for _, s := range w.Nodes {
		if s.Epoch != w.Nodes[0].Epoch {
			return
		}
	}
	w.Flight = slices.DeleteFunc(slices.Clone(g.flight), func(e kmutex.Envelope) bool {
		return e.Message.Epoch != w.Nodes[0].Epoch
	})
	if err := w.Check(); err != nil {
		d.Fatalf(t, "%v", err)
	}
}

func (g *golden) state() {
	for i, m := range g.machines {
		s := m.State()
		if g.lost[i] {
			continue
		}
		fmt.Fprintf(&g.out, "%d: parent=%d", s.Self, s.Parent)
		if s.Withheld.Len() > 0 {
			fmt.Fprintf(&g.out, " withheld=%v", s.Withheld)
		}
		if len(s.Offered) > 0 {
			fmt.Fprintf(&g.out, " offered=%v", s.Offered)
		}
		if s.Excess != nil {
			fmt.Fprintf(&g.out, " excess=%d kept=%v", s.Excess[0], s.Kept)
		}
		if s.Baton {
			fmt.Fprintf(&g.out, " coordinator counter=%d", s.Counter)
			if g.early {
				fmt.Fprintf(&g.out, " tails=%v", s.Tails)
			} else {
				fmt.Fprintf(&g.out, " free=%v", s.Free)
			}
		}
		g.showResting(&s)
		for _, r := range s.Running {
			fmt.Fprintf(&g.out, " running=%d(token %d)", r.Request, r.Token)
		}
		for _, batch := range s.Batches {
			fmt.Fprintf(&g.out, " batch%v->%d", batch.Requests, batch.Next.Node)
		}
		if len(s.Pending) > 0 {
			fmt.Fprintf(&g.out, " pending%v", s.Pending)
		}
		for _, p := range s.Parked {
			fmt.Fprintf(&g.out, " parked=%v(number %d)", p.Free, p.Number)
		}
		for _, seat := range s.Seats {
			fmt.Fprintf(&g.out, " seat %d.%d(request=%d token=%d child=%v)", s.Self, seat.Serial, seat.Request, seat.Token, seat.Child)
		}
		g.out.WriteString("\n")
	}
	for _, e := range g.flight {
		fmt.Fprintf(&g.out, "in flight: %v\n", e)
	}
}

// showResting shows the tokens away from the baton, under late binding.
func (g *golden) showResting(s *kmutex.State) {
	for _, set := range []struct {
		name   string
		tokens kmutex.TokenSet
		shown  bool
	}{{"rests", s.Free, !s.Baton}, {"back", s.Back, true}, {"stock", s.Stock, true}} {
		if set.shown && set.tokens.Len() > 0 {
			fmt.Fprintf(&g.out, " %s=%v", set.name, set.tokens)
		}
	}
	if len(s.Resting) > 0 {
		fmt.Fprintf(&g.out, " resting=%v", s.Resting)
	}
	if s.Due > 0 || s.Wanted > 0 {
		fmt.Fprintf(&g.out, " due=%d wanted=%d", s.Due, s.Wanted)
	}
}
