package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

const (
	ms = time.Millisecond
	// start is when the leader of a world begins to lead.
	start = 10 * time.Second
)

var terms = lease.Terms{Lease: 3 * time.Second, Bound: 600 * ms}

// world is a leader, its members and what they tell it, in virtual time. Members 1
// to n are called a, b and so on; the first leads and is the home of a pool.
type world struct {
	t       *testing.T
	rules   *Rules
	grantor *lease.Grantor
	now     time.Duration
	view    views.View
	tags    uint64
	// quiet members do not renew.
	quiet map[kmutex.Node]bool
	// known returns the number of the view that a member knows, if that is not the newest.
	known   map[kmutex.Node]func() uint64
	reports map[kmutex.Node]Report
	// often: a view comes so often.
	often time.Duration
	seen  Observation
	// lost are those that verdicts have suspended, why and when.
	lost map[kmutex.Node]fate
	// mute voters answer no round.
	mute bool
	// handed is when the leader was to hand over.
	handed time.Duration
	// follows: verdicts are carried out.
	expired  map[kmutex.Node]time.Duration
	returned map[kmutex.Node]time.Duration
}

type fate struct {
	why  Reason
	text string
	at   time.Duration
}

func newWorld(t *testing.T, n int) *world {
	w := &world{
		t: t, now: start, grantor: lease.NewGrantor(terms, 1, start),
		quiet: map[kmutex.Node]bool{}, known: map[kmutex.Node]func() uint64{}, reports: map[kmutex.Node]Report{},
		seen: Observation{Self: "a", Boots: map[string]string{}, Unreachable: map[kmutex.Node]time.Duration{}},
		lost: map[kmutex.Node]fate{}, expired: map[kmutex.Node]time.Duration{}, returned: map[kmutex.Node]time.Duration{},
		view: views.View{Number: 1, Pools: []views.Pool{{Name: "p", Home: 1}}},
	}
	w.rules = New(terms, w.grantor, nil, start)
	for i := range n {
		name := string(rune('a' + i))
		w.view.Members = append(w.view.Members, views.Member{Node: kmutex.Node(i + 1), Name: name, Boot: name + "1"})
		w.seen.Boots[name] = name + "1"
	}
	w.follow()
	return w
}

// run lets time pass, in steps of Interval.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	for end := w.now + d; w.now < end; {
		w.now += Interval
		if w.often > 0 && (w.now-start)%w.often == 0 {
			w.next()
		}
		w.renew()
		v := w.rules.Judge(w.seen, w.now)
		w.carryOut(v)
	}
}

// renew has every member renew that is due, and the voters confirm it.
func (w *world) renew() {
	if (w.now-start)%terms.Interval() != 0 {
		return
	}
	for _, m := range w.view.Members {
		if w.quiet[m.Node] {
			continue
		}
		w.tags++
		rep := w.reports[m.Node]
		rep.View = w.view.Number
		if known := w.known[m.Node]; known != nil {
			rep.View = known()
		}
		w.rules.Receive(lease.Renewal{Node: m.Node, Tag: w.tags}, rep, w.now)
	}
	if w.mute {
		return
	}
	w.grantor.Confirm(w.grantor.Ask())
	w.rules.Confirmed()
}

// carryOut does what a verdict says.
func (w *world) carryOut(v Verdict) {
	for _, s := range v.Suspend {
		w.lost[s.Node] = fate{s.Reason, s.Text("a"), w.now - start}
		w.lose(s.Node)
	}
	for _, n := range v.Expire {
		w.expired[n] = w.now - start
		w.view.Lost = slices.DeleteFunc(slices.Clone(w.view.Lost), func(l views.Lost) bool { return l.Node == n })
		w.next()
	}
	for _, back := range v.Return {
		for _, n := range back.Nodes {
			w.returned[n] = w.now - start
		}
		w.owe(0)
		w.next()
	}
	if v.HandOver {
		w.rules.HandedOver(w.now)
		w.handed = w.now - start
	}
}

func (w *world) lose(n kmutex.Node) {
	w.view.Members = slices.DeleteFunc(slices.Clone(w.view.Members), func(m views.Member) bool { return m.Node == n })
	w.view.Lost = append(slices.Clone(w.view.Lost), views.Lost{Node: n, Leased: true})
	w.next()
}

// owe makes the pool wait for a longest hold of nodes that are lost.
func (w *world) owe(hold time.Duration, nodes ...kmutex.Node) {
	w.view.Pools = []views.Pool{{Name: "p", Home: 1, Reclaim: admission.ReclaimHold, HoldMax: hold, Owed: nodes}}
}

func (w *world) next() {
	w.view.Number++
	w.follow()
}

func (w *world) follow() {
	v := w.view
	w.rules.Follow(&v, w.now)
}

// bear makes members witnesses.
func (w *world) bear(nodes ...kmutex.Node) {
	w.view.Members = slices.Clone(w.view.Members)
	for _, n := range nodes {
		w.view.Members[n-1].Witness = true
	}
	w.next()
}

// wantLost checks who was suspended, why, and when at the earliest and the latest.
func (w *world) wantLost(want map[kmutex.Node]Reason, from, to time.Duration) {
	w.t.Helper()
	for n, why := range want {
		if f, ok := w.lost[n]; !ok || f.why != why || f.at < from || f.at > to {
			w.t.Errorf("node %d: %q after %v, want %q after %v to %v", n, f.why, f.at, why, from, to)
		}
	}
	for n, f := range w.lost {
		if want[n] == "" {
			w.t.Errorf("node %d is suspended: %s", n, f.why)
		}
	}
}
