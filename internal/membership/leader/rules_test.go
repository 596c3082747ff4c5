package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

type (
	nodes = []kmutex.Node
	fates = map[kmutex.Node]Reason
)

// half, third and interval are parts of the lease.
var (
	half     = terms.Lease / 2
	third    = terms.Lease / 3
	interval = terms.Interval()
)

// Each fault of the table has its rule and keeps its bound.
func TestTable(t *testing.T) {
	miss := func(home kmutex.Node, these ...kmutex.Node) func(*world) {
		return func(w *world) { w.reports[home] = Report{Missing: these} }
	}
	down := func(a, b kmutex.Node) func(*world) {
		return func(w *world) { w.reports[a], w.reports[b] = Report{Down: nodes{b}}, Report{Down: nodes{a}} }
	}
	one := func() uint64 { return 1 }
	for name, tt := range map[string]struct {
		fault    func(*world)
		want     fates
		from, to time.Duration
	}{
		"quiet": {fault: func(*world) {}},
		"a process is gone": {
			func(w *world) { w.quiet[3] = true; w.seen.Unreachable[3] = start + 100*ms },
			fates{3: Gone},
			Interval, Interval,
		},
		"it has renewed since the first dial": {
			fault: func(w *world) { w.seen.Unreachable[3] = start - 100*ms },
		},
		"a host is gone": {
			func(w *world) { w.quiet[3] = true; delete(w.seen.Boots, "c") },
			fates{3: Silent},
			half, half + Interval,
		},
		"it came back as another": {
			func(w *world) { w.quiet[3] = true; w.seen.Boots["c"] = "c2" },
			fates{3: Silent},
			half, half + Interval,
		},
		"it does not renew and gossip sees it": {
			func(w *world) { w.quiet[3] = true },
			fates{3: Over},
			terms.Wait(), terms.Wait() + Interval,
		},
		"gossip alone is no evidence": {
			fault: func(w *world) { delete(w.seen.Boots, "c") },
		},
		"a link is broken": {down(2, 4), fates{4: Apart}, interval, interval + Interval},
		"one end complains": {
			fault: func(w *world) { w.reports[2] = Report{Down: nodes{4}} },
		},
		"a report does not come":            {miss(1, 3), fates{3: Missing}, interval, 2*interval + Interval},
		"a home cannot make its own report": {miss(1, 1), fates{1: Missing}, interval, 2*interval + Interval},
		"two reports do not come": {
			miss(1, 3, 4), fates{3: Missing, 4: Missing}, interval, 2*interval + Interval,
		},
		"no report comes": {miss(1, 2, 3, 4, 5), fates{1: Unheard}, interval, 2*interval + Interval},
		"most reports do not come": {
			miss(1, 2, 3, 4), fates{1: Unheard}, interval, 2*interval + Interval,
		},
		"one that is no home complains": {fault: miss(2, 3)},
		"views are not followed": {
			func(w *world) { w.known[3] = one; w.next() },
			fates{3: Behind},
			half, half + third,
		},
		"views are not followed, and more come": {
			func(w *world) { w.known[3], w.often = one, interval; w.next() },
			fates{3: Behind},
			half, half + third,
		},
		"views are followed late": {
			fault: func(w *world) { w.known[3], w.often = func() uint64 { return w.view.Number - 1 }, interval; w.next() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			w.renew()
			tt.fault(w)
			w.run(2 * terms.Wait())
			w.wantLost(tt.want, tt.from, tt.to)
			if w.handed != 0 {
				t.Errorf("the lead is handed over after %v", w.handed)
			}
		})
	}
}

// One complaint of a home that was stopped for a moment says nothing.
func TestOneComplaintIsNone(t *testing.T) {
	w := newWorld(t, 5)
	w.reports[1] = Report{Missing: nodes{3}}
	w.run(interval)
	w.reports[1] = Report{}
	w.run(interval)
	w.reports[1] = Report{Missing: nodes{3}}
	w.run(interval)
	w.reports[1] = Report{}
	w.run(terms.Lease)
	w.wantLost(nil, 0, 0)
}

// Nobody has sent a report before its link was up: who has just come in has time
// for that.
func TestNewcomerHasTime(t *testing.T) {
	w := newWorld(t, 5)
	w.renew()
	w.run(terms.Lease)
	w.view.Members = append(w.view.Members, views.Member{Node: 6, Name: "f", Boot: "f"})
	w.next()
	w.seen.Boots["f"] = "f"
	w.reports[1] = Report{Missing: nodes{6}}
	w.run(2*half + interval)
	w.wantLost(fates{6: Missing}, 2*terms.Lease, 2*terms.Lease+interval)
}

// With two gateways the one that is missed goes: one of one is no majority against
// the home.
func TestTwoGateways(t *testing.T) {
	w := newWorld(t, 2)
	w.reports[1] = Report{Missing: nodes{2}}
	w.run(half)
	w.wantLost(fates{2: Missing}, interval, half)
}

// A leader that goes on after a pause has not listened: nobody was silent. Somebody
// who is silent from then on is found as ever.
func TestStoppedLeaderSuspectsNobody(t *testing.T) {
	w := newWorld(t, 5)
	w.run(terms.Lease)
	w.now += 2 * terms.Wait() / interval * interval
	began := w.now - start
	w.quiet[3] = true
	delete(w.seen.Boots, "c")
	w.run(terms.Lease)
	w.wantLost(fates{3: Silent}, began+half, began+half+2*Interval)
}

// A leader that most members do not get through to hands the lead over, and not
// again and again.
func TestHandOver(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(*world)
		want  bool
	}{
		"most are not heard": {func(w *world) { w.quiet[2], w.quiet[3], w.quiet[4] = true, true, true }, true},
		"two are not heard":  {func(w *world) { w.quiet[2], w.quiet[3] = true, true }, false},
		"most are gone": {func(w *world) {
			for n := range kmutex.Node(3) {
				w.quiet[n+2], w.seen.Unreachable[n+2] = true, start
			}
		}, false},
		"gossip does not see most": {func(w *world) {
			for n := range kmutex.Node(3) {
				w.quiet[n+2] = true
				delete(w.seen.Boots, string(rune('b'+n)))
			}
		}, false},
		"the voters do not answer": {func(w *world) { w.mute = true }, true},
		"it is a witness":          {func(w *world) { w.bear(1) }, true},
		"another is a witness":     {func(w *world) { w.bear(2) }, false},
		"all others are witnesses": {func(w *world) { w.bear(1, 2, 3, 4, 5) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			w.renew()
			tt.fault(w)
			w.run(half + interval)
			if got := w.handed != 0; got != tt.want || got && (w.handed < half || w.handed > half+interval) {
				t.Errorf("handed over: %v after %v, want %v", got, w.handed, tt.want)
			}
			if first := w.handed; first != 0 {
				if w.run(half); w.handed != first {
					t.Errorf("handed over again after %v", w.handed)
				}
				again := New(terms, w.grantor, w.rules, w.now)
				again.Follow(&w.view, w.now)
				again.unconfirmed = w.now
				if again.unfit(w.seen, w.now+terms.Wait()-1) || !again.unfit(w.seen, w.now+terms.Wait()) {
					t.Error("what was handed over is forgotten in the next term, or kept for ever")
				}
			}
		})
	}
}

// A leader that hears nobody takes nobody out, and those whose lease may be over not before it is answered again.
func TestAlone(t *testing.T) {
	w := newWorld(t, 3)
	w.renew()
	w.quiet[2], w.quiet[3] = true, true
	w.seen.Alone = true
	for _, n := range (nodes{2, 3}) {
		w.seen.Unreachable[n] = start + interval
	}
	w.run(2 * terms.Wait())
	w.wantLost(nil, 0, 0)
	w.seen.Alone = false
	w.run(Interval)
	w.wantLost(fates{2: Gone, 3: Gone}, 2*terms.Wait(), 2*terms.Wait()+2*Interval)
}

// A leader that is alone since the others do not reach it hands the lead over to them.
// One that keeps out only one does not.
func TestHandOverToThoseKeptOut(t *testing.T) {
	w := newWorld(t, 1)
	w.renew()
	w.run(half)
	w.rules.LetIn("b", []string{"a"}, w.seen, w.now)
	w.run(Interval)
	if w.handed != 0 {
		t.Error("the lead is handed over for one gateway")
	}
	w.rules.LetIn("c", []string{"b", "a"}, w.seen, w.now)
	w.run(Interval)
	if w.handed == 0 {
		t.Error("a leader that all are kept out for stays")
	}
	if w.run(2 * terms.Lease); w.rules.unfit(w.seen, w.now) {
		t.Error("what was long ago counts")
	}
}

// A leader that is kept out itself, and keeps another out, hands the lead over: the two others
// may reach each other.
func TestHandOverByOneThatIsOut(t *testing.T) {
	w := newWorld(t, 2)
	w.view.Members = w.view.Members[1:]
	w.next()
	w.renew()
	w.run(half)
	w.rules.Knocks("c", "a", w.now)
	if w.rules.unfit(w.seen, w.now) {
		t.Error("the lead is handed over for one gateway that is out")
	}
	w.rules.LetIn("a", []string{"b"}, w.seen, w.now)
	if !w.rules.unfit(w.seen, w.now) {
		t.Error("a leader that is out keeps another out, and stays")
	}
}

// What a pool waits for is the longest hold after the lease was over: until then
// requests may have been let in.
func TestReturn(t *testing.T) {
	const hold = 5 * time.Second
	w := newWorld(t, 3)
	w.renew()
	w.quiet[3] = true
	w.owe(hold, 3)
	w.lose(3)
	w.run(2 * (terms.Wait() + hold))
	expired, back := w.expired[3], w.returned[3]
	if expired < terms.Wait() || expired > terms.Wait()+Interval {
		t.Errorf("expired after %v", expired)
	}
	if back < terms.Wait()+hold || back > expired+hold+Interval {
		t.Errorf("given back after %v, want %v", back, terms.Wait()+hold)
	}
}

// Who led before knows when leases were over; another leader has to wait for all of
// it again.
func TestReturnOverTerms(t *testing.T) {
	const hold = 5 * time.Second
	w := newWorld(t, 3)
	w.owe(hold, 3)
	w.view.Members = w.view.Members[:2]
	w.next()
	now := w.now + hold
	same := New(terms, lease.NewGrantor(terms, 5, now), w.rules, now)
	other := New(terms, lease.NewGrantor(terms, 5, now), nil, now)
	same.Follow(&w.view, now)
	other.Follow(&w.view, now)
	if len(same.due(now)) != 1 || len(other.due(now)) != 0 || len(other.due(now+hold-1)) != 0 || len(other.due(now+hold)) != 1 {
		t.Error("the longest hold is counted from somewhere else")
	}
}

// Whoever wants to come in has to reach those that renew, as the incarnations that
// they are, and nobody else.
func TestLetIn(t *testing.T) {
	for name, tt := range map[string]struct {
		fault     func(*world)
		unreached []string
		want      string
	}{
		"it reaches all":             {func(*world) {}, nil, ""},
		"not a member that renews":   {func(*world) {}, []string{"c", "b"}, "b"},
		"not somebody else":          {func(*world) {}, []string{"x"}, ""},
		"not itself":                 {func(*world) {}, []string{"e"}, ""},
		"not one that is silent":     {func(w *world) { w.quiet[2] = true; w.run(half) }, []string{"b"}, ""},
		"not yet silent":             {func(w *world) { w.quiet[2] = true; w.run(third) }, []string{"b"}, "b"},
		"not one that came back":     {func(w *world) { w.seen.Boots["b"] = "b2" }, []string{"b"}, ""},
		"not a witness":              {func(w *world) { w.bear(2) }, []string{"b"}, ""},
		"not a witness that leads":   {func(w *world) { w.bear(1) }, []string{"a"}, "a"},
		"not one that gossip misses": {func(w *world) { delete(w.seen.Boots, "b") }, []string{"b"}, ""},
	} {
		w := newWorld(t, 4)
		w.renew()
		tt.fault(w)
		if got := w.rules.LetIn("e", tt.unreached, w.seen, w.now); got != tt.want {
			t.Errorf("%s: stays out for %q, want %q", name, got, tt.want)
		}
	}
}

// Whoever was suspended for its links stays out, longer each time that it happens
// again soon; whoever was killed does not.
func TestFlapBackoff(t *testing.T) {
	w := newWorld(t, 5)
	w.reports[2], w.reports[4] = Report{Down: nodes{4}}, Report{Down: nodes{2}}
	w.quiet[3], w.seen.Unreachable[3] = true, start+1
	w.run(terms.Lease)
	w.wantLost(fates{3: Gone, 4: Apart}, Interval, interval+Interval)
	at := start + w.lost[4].at
	if !w.rules.Waits("d", at+shortBackoff-1) || w.rules.Waits("d", at+shortBackoff) || w.rules.Waits("c", at) {
		t.Error("d does not wait, or c does")
	}
	for _, wait := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		wait *= time.Second
		at += wait / 2
		w.rules.flapped("d", Apart, at)
		if !w.rules.Waits("d", at+wait-1) || w.rules.Waits("d", at+wait) {
			t.Errorf("it does not wait for %v", wait)
		}
		at += wait
	}
	at += time.Hour
	w.rules.flapped("d", Apart, at)
	if w.rules.Waits("d", at+shortBackoff) {
		t.Error("what was an hour ago counts")
	}
}

// Those that do not renew are to be dialed, long before they count as silent.
func TestQuiet(t *testing.T) {
	w := newWorld(t, 3)
	w.renew()
	w.quiet[2] = true
	w.run(third - Interval)
	if quiet := w.rules.Quiet(w.now); len(quiet) > 0 {
		t.Errorf("%v are quiet too early", quiet)
	}
	w.run(Interval)
	if quiet := w.rules.Quiet(w.now); !slices.Equal(quiet, nodes{2}) {
		t.Errorf("%v are quiet", quiet)
	}
}

// A member that two gateways do not reach, which reach each other and everybody else,
// goes; a leader hands the lead over. One gateway, or two that do not reach each other,
// stay out.
func TestKeepers(t *testing.T) {
	for name, tt := range map[string]struct {
		unreached map[string][]string
		shut      []string
		silent    bool
		want      fates
		handed    bool
	}{
		"two do not reach a member":           {unreached: map[string][]string{"x": {"b"}, "y": {"b"}}, want: fates{2: Keeps}},
		"one does not":                        {unreached: map[string][]string{"x": {"b"}, "y": {"c"}}},
		"two do not, and one reaches neither": {unreached: map[string][]string{"w": {"b", "x", "y"}, "x": {"b"}, "y": {"b"}}, want: fates{2: Keeps}},
		"three do not reach two members":      {unreached: map[string][]string{"w": {"b", "c"}, "x": {"b"}, "y": {"c"}}, want: fates{2: Keeps, 3: Keeps}},
		"three do not reach two, one leads":   {unreached: map[string][]string{"w": {"a", "c"}, "x": {"a", "c"}, "y": {"c", "a"}}, handed: true},
		"three, of which two are connected":   {unreached: map[string][]string{"w": {"b", "c", "x"}, "x": {"b", "c"}, "y": {"b", "c"}}},
		"nor each other":                      {unreached: map[string][]string{"x": {"b", "y"}, "y": {"b"}}},
		"nor another member":                  {unreached: map[string][]string{"x": {"b"}, "y": {"b", "c"}}},
		"two do not reach the leader":         {unreached: map[string][]string{"x": {"a"}, "y": {"a"}}, handed: true},
		"one does not, one answers not":       {unreached: map[string][]string{"x": {"a"}}, shut: []string{"y"}, handed: true},
		"two answer another member":           {shut: []string{"x", "y"}, handed: true},
		"one answers another member":          {shut: []string{"x"}},
		"two that gossip sees no more":        {unreached: map[string][]string{"x": {"b"}, "y": {"b"}}, silent: true},
		"two that came in, or try no more":    {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.renew()
			if !tt.silent {
				w.seen.Boots["w"], w.seen.Boots["x"], w.seen.Boots["y"] = "w1", "x1", "y1"
			}
			for end := w.now + terms.Lease; w.now < end && len(w.lost) == 0; w.run(interval / 2) {
				for _, who := range tt.shut {
					w.rules.Knocks(who, "a", w.now)
				}
				for who, unreached := range tt.unreached {
					w.rules.LetIn(who, unreached, w.seen, w.now)
				}
			}
			w.wantLost(tt.want, third, half)
			if handed := w.handed > 0; handed != tt.handed {
				t.Errorf("the lead is handed over: %v", handed)
			}
		})
	}
}

// The only member goes for the sake of two others as well, one of which leads.
func TestLastMemberKeeps(t *testing.T) {
	w := newWorld(t, 2)
	w.lose(1)
	for end := w.now + terms.Lease; w.now < end && len(w.lost) == 0; w.run(interval / 2) {
		w.rules.LetIn("a", []string{"b"}, w.seen, w.now)
		w.seen.Boots["x"] = "x1"
		w.rules.LetIn("x", []string{"b"}, w.seen, w.now)
	}
	w.wantLost(fates{2: Keeps}, third, half)
}

// A gateway whose reports do not come stays out until its lease is over: nothing is
// owed then, so no epoch has to wait for its report again.
func TestMissingStaysOutForItsLease(t *testing.T) {
	w := newWorld(t, 5)
	w.reports[1] = Report{Missing: nodes{3}}
	w.run(terms.Lease)
	w.wantLost(fates{3: Missing}, interval, 2*interval+Interval)
	if at := start + w.lost[3].at; !w.rules.Waits("c", at+terms.Wait()+Interval) || w.rules.Waits("c", at+terms.Wait()+3*Interval) {
		t.Error("it may come in before its lease is over, or long after")
	}
}
