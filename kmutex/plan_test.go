package kmutex_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
)

func tokens(qs ...kmutex.Token) kmutex.TokenSet {
	var s kmutex.TokenSet
	for _, q := range qs {
		s.Add(q)
	}
	return s
}

func runs(qs ...kmutex.Token) []kmutex.Grant {
	var gs []kmutex.Grant
	for i, q := range qs {
		gs = append(gs, kmutex.Grant{Request: kmutex.Request(i + 1), Token: q, Serial: 7})
	}
	return gs
}

// slotOf is a slot that a lost node had, with token q.
func slotOf(q kmutex.Token) kmutex.Grant {
	return kmutex.Grant{Request: kmutex.AdoptedRequest(9, 0), Token: q, Serial: 3}
}

// PlanEpoch divides the tokens into free, running and withheld. Node 1 is home of epoch 9 and
// begins with the free tokens, as no request waits.
func TestPlanTokens(t *testing.T) {
	for name, tc := range map[string]struct {
		f       kmutex.EpochChange
		reports []kmutex.Report
		// free, withheld, and each node's running tokens.
		want string
	}{
		"nobody is lost": {
			kmutex.EpochChange{K: 3},
			[]kmutex.Report{{Node: 1, Running: runs(2)}, {Node: 2}},
			"free {0,1} withheld {} running [2] [] tokens {0,1,2}",
		},
		"k is raised": {
			kmutex.EpochChange{K: 5},
			[]kmutex.Report{{Node: 1, Running: runs(2)}, {Node: 2, Running: runs(0)}},
			"free {1,3,4} withheld {} running [2] [0] tokens {0,1,2,3,4}",
		},
		"k is lowered: one of three is too many": {
			kmutex.EpochChange{K: 2},
			[]kmutex.Report{{Node: 1, Running: runs(0, 5)}, {Node: 2, Running: runs(3)}},
			"free {} withheld {} running [0 5] [3] tokens {0,3,5} excess 1",
		},
		"k is lowered: there is room beside tokens of k or more": {
			kmutex.EpochChange{K: 4},
			[]kmutex.Report{{Node: 1, Running: runs(0, 5)}, {Node: 2, Running: runs(7), Free: tokens(6)}},
			"free {1} withheld {} running [0 5] [7] tokens {0,1,5,7}",
		},
		"too many run, and some are withheld": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2, 3, 4), Running: runs(0, 4), Free: tokens(1)}},
			"free {} withheld {2,3} running [0 4] tokens {0,2,3,4} excess 2",
		},
		"tokens that were kept back are no lost node's": {
			kmutex.EpochChange{K: 3, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 4, 5), Running: runs(4), Free: tokens(0, 5)}},
			"free {0} withheld {1} running [4] tokens {0,1,4}",
		},
		"a node is lost: only what somebody has": {
			kmutex.EpochChange{K: 4, Owed: true},
			[]kmutex.Report{
				{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2, 3), Running: runs(2)},
				{Node: 2, Installed: 8, Tokens: tokens(0, 1, 2, 3), Free: tokens(1)},
			},
			"free {1} withheld {0,3} running [2] [] tokens {0,1,2,3}",
		},
		"an epoch may have begun since: what was free is somebody's": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 7, Tokens: tokens(0, 1), Free: tokens(0, 1), MaxK: 2}},
			"free {} withheld {0,1} running [] tokens {0,1}",
		},
		"it has not begun: its home says so": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{
				{Node: 1, Installed: 6, Tokens: tokens(0, 1), Free: tokens(0, 1), MaxK: 5, Unplanned: []uint64{7}},
				{Node: 2, Installed: 7, Unplanned: []uint64{8}},
			},
			"free {0,1} withheld {} running [] [] tokens {0,1}",
		},
		"no epoch has begun ever: their homes say so": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{
				{Node: 1, Unplanned: []uint64{1, 2, 3, 4, 5, 6, 7}, MaxK: 5},
				{Node: 2, Unplanned: []uint64{8}},
			},
			"free {0,1} withheld {} running [] [] tokens {0,1}",
		},
		"an epoch may have begun, and nobody knows its tokens": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{{Node: 1, Unplanned: []uint64{1, 2, 3, 4, 5, 6, 8}, MaxK: 5}},
			"free {} withheld {0,1} running [] tokens {}",
		},
		"k was larger in an epoch that may have begun": {
			kmutex.EpochChange{K: 6, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 7, Tokens: tokens(0, 1), Running: runs(0), MaxK: 4}},
			"free {4,5} withheld {1,2,3} running [0] tokens {0,1,2,3,4,5}",
		},
		"a token that runs is not free, whatever others say": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{
				{Node: 1, Installed: 8, Tokens: tokens(0, 1), Free: tokens(0, 1)},
				{Node: 2, Installed: 8, Tokens: tokens(0, 1), Running: runs(1)},
			},
			"free {0} withheld {} running [] [1] tokens {0,1}",
		},
		"withheld tokens of k or more leave less room": {
			kmutex.EpochChange{K: 3, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2, 3, 4), Running: runs(4), Free: tokens(0, 1)}},
			"free {} withheld {2,3} running [4] tokens {2,3,4}",
		},
		"whoever knew is gone": {
			kmutex.EpochChange{K: 3, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 8, Running: runs(2), Free: tokens(0)}},
			"free {} withheld {0,1} running [2] tokens {}",
		},
		"whoever knew is gone, and nothing is owed": {
			kmutex.EpochChange{K: 3},
			[]kmutex.Report{{Node: 1, Installed: 8, Running: runs(2)}},
			"free {0,1} withheld {} running [2] tokens {0,1,2}",
		},
		"a slot is taken over: its token stays withheld": {
			kmutex.EpochChange{K: 3, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2), Free: tokens(0), Running: append(runs(1), slotOf(2))}},
			"free {0} withheld {2} running [1 2] tokens {0,1,2}",
		},
		"and in the epochs after": {
			kmutex.EpochChange{K: 1, Owed: true},
			[]kmutex.Report{{
				Node: 1, Installed: 8, Tokens: tokens(0, 1, 2), Free: tokens(0),
				Running: []kmutex.Grant{{Request: kmutex.AdoptedRequest(8, 0), Token: 2}},
			}},
			"free {} withheld {1,2} running [2] tokens {1,2} excess 1",
		},
		"and comes back with the last": {
			kmutex.EpochChange{K: 3},
			[]kmutex.Report{{Node: 1, Installed: 8, Running: []kmutex.Grant{{Request: kmutex.AdoptedRequest(8, 0), Token: 2}}}},
			"free {0,1} withheld {} running [2] tokens {0,1,2}",
		},
		"a slot is taken over when nothing is owed": {
			kmutex.EpochChange{K: 2},
			[]kmutex.Report{{Node: 1, Running: append(runs(0), slotOf(1))}},
			"free {} withheld {} running [0 1] tokens {0,1}",
		},
		"a slot whose token runs or is free elsewhere had been released": {
			kmutex.EpochChange{K: 3, Owed: true},
			[]kmutex.Report{
				{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2), Running: runs(0), Free: tokens(1)},
				{Node: 2, Installed: 8, Running: []kmutex.Grant{slotOf(0), slotOf(1), slotOf(2)}},
			},
			"free {1} withheld {2} running [0] [2] tokens {0,1,2}",
		},
		"a slot whose token nobody has heard of is withheld, too": {
			kmutex.EpochChange{K: 2, Owed: true},
			[]kmutex.Report{{Node: 1, Installed: 8, Running: append(runs(2), slotOf(5))}},
			"free {} withheld {0,1,5} running [2 5] tokens {} excess 2",
		},
		"nothing is owed, and some tokens are claimed": {
			kmutex.EpochChange{K: 4, Claimed: tokens(1, 2)},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2, 3), Running: runs(0)}},
			"free {3} withheld {1,2} running [0] tokens {0,1,2,3}",
		},
		"what somebody has is not claimed": {
			kmutex.EpochChange{K: 4, Claimed: tokens(1, 2, 3)},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2, 3), Running: runs(2), Free: tokens(3)}},
			"free {0,3} withheld {1} running [2] tokens {0,1,2,3}",
		},
		"tokens are claimed, and another node is lost": {
			kmutex.EpochChange{K: 4, Owed: true, Claimed: tokens(1)},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2, 3), Running: runs(0), Free: tokens(3)}},
			"free {3} withheld {1,2} running [0] tokens {0,1,2,3}",
		},
		"whoever knew is gone, and a token is claimed": {
			kmutex.EpochChange{K: 3, Claimed: tokens(1)},
			[]kmutex.Report{{Node: 1, Installed: 8, Running: runs(2), Free: tokens(0)}},
			"free {} withheld {0,1} running [2] tokens {}",
		},
		"slots are taken over whose tokens are claimed": {
			kmutex.EpochChange{K: 3, Claimed: tokens(1, 2)},
			[]kmutex.Report{{Node: 1, Installed: 8, Tokens: tokens(0, 1, 2), Running: []kmutex.Grant{slotOf(1), {Request: kmutex.AdoptedRequest(8, 0), Token: 2}}}},
			"free {0} withheld {1,2} running [1 2] tokens {0,1,2}",
		},
	} {
		tc.f.Epoch, tc.f.Home = 9, 1
		installs, err := kmutex.PlanEpoch(tc.f, tc.reports)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := fmt.Sprintf("free %v withheld %v running", installs[0].Free, installs[0].Withheld)
		for _, in := range installs {
			qs := []kmutex.Token{}
			for _, g := range in.Running {
				qs = append(qs, g.Token)
			}
			got += fmt.Sprint(" ", qs)
		}
		got += fmt.Sprintf(" tokens %v", installs[0].Tokens)
		if installs[0].Excess != nil {
			got += fmt.Sprintf(" excess %d", installs[0].Excess[0])
		}
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	huge := make(kmutex.TokenSet, kmutex.MaxK/64+1)
	huge[kmutex.MaxK/64] = 1
	for name, tc := range map[string]struct {
		k       int
		reports []kmutex.Report
	}{
		"no k":               {0, []kmutex.Report{{Node: 1}}},
		"k too large":        {kmutex.MaxK + 1, []kmutex.Report{{Node: 1}}},
		"no report of home":  {1, []kmutex.Report{{Node: 2}}},
		"two reports":        {1, []kmutex.Report{{Node: 1}, {Node: 1}}},
		"a token twice":      {2, []kmutex.Report{{Node: 1, Running: runs(0)}, {Node: 2, Running: runs(0)}}},
		"a token too large":  {2, []kmutex.Report{{Node: 1, Running: runs(kmutex.MaxK)}}},
		"a negative token":   {2, []kmutex.Report{{Node: 1, Running: runs(-2)}}},
		"an own one without": {2, []kmutex.Report{{Node: 1, Running: runs(kmutex.NoToken)}}},
		"tokens too large":   {2, []kmutex.Report{{Node: 1, Tokens: huge}}},
		"free too large":     {2, []kmutex.Report{{Node: 1, Free: huge}}},
		"peak too large":     {2, []kmutex.Report{{Node: 1, MaxK: kmutex.MaxK + 1}}},
		"peak negative":      {2, []kmutex.Report{{Node: 1, MaxK: -1}}},
	} {
		if _, err := kmutex.PlanEpoch(kmutex.EpochChange{Epoch: 9, K: tc.k, Home: 1}, tc.reports); !errors.Is(err, kmutex.ErrInstall) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A node that joins in the middle of an epoch does not know the epoch's tokens: it may not have
// heard of tokens that a lowered k left behind.
func TestNewcomersDoNotKnowTheTokens(t *testing.T) {
	for _, tc := range []struct {
		epoch      uint64
		home, self kmutex.Node
		known      bool
	}{{1, 1, 1, true}, {1, 1, 2, true}, {2, 1, 2, false}} {
		if in := kmutex.Genesis(kmutex.EpochChange{Epoch: tc.epoch, K: 2, Home: tc.home}, tc.self); (in.Tokens != nil) != tc.known {
			t.Errorf("%+v: tokens %v", tc, in.Tokens)
		}
	}
}

// frozen returns a machine of node 1 that is frozen for epoch 2, with request 1
// running, 2 and 3 waiting; and an install that fits.
func frozen(t *testing.T, b kmutex.Binding) (*kmutex.Machine, *kmutex.Install) {
	t.Helper()
	m := kmutex.New(1, b)
	var fx *kmutex.Effects
	for _, e := range []kmutex.Event{
		{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: 1, Home: 1}, 1)},
		{Kind: kmutex.EventAcquire, Request: 1},
		{Kind: kmutex.EventAcquire, Request: 2},
		{Kind: kmutex.EventAcquire, Request: 3},
		{Kind: kmutex.EventFreeze, Epoch: 2, K: 2},
	} {
		var err error
		if fx, err = m.Step(&e); err != nil {
			t.Fatal(err)
		}
	}
	r := *fx.Report
	r.Running = append(r.Running, slotOf(1))
	r.Waiting = append(r.Waiting, kmutex.ReportedBatch{Stamp: -1, Requests: []kmutex.Request{slotOf(1).Request + 1}})
	installs, err := kmutex.PlanEpoch(kmutex.EpochChange{Epoch: 2, K: 2, Home: 1}, []kmutex.Report{r})
	if err != nil {
		t.Fatal(err)
	}
	return m, installs[0]
}

// An install that does not fit is refused, and changes nothing.
func TestBadInstalls(t *testing.T) {
	for name, spoil := range map[string]func(*kmutex.Install){
		"epoch 0":                          func(in *kmutex.Install) { in.Epoch = 0 },
		"an older epoch":                   func(in *kmutex.Install) { in.Epoch = 1 },
		"a newer epoch":                    func(in *kmutex.Install) { in.Epoch = 3 },
		"no k":                             func(in *kmutex.Install) { in.K = 0 },
		"k too large":                      func(in *kmutex.Install) { in.K = kmutex.MaxK + 1 },
		"no home":                          func(in *kmutex.Install) { in.Home = 0 },
		"no holder":                        func(in *kmutex.Install) { in.Holder = 0 },
		"its own parent":                   func(in *kmutex.Install) { in.Parent = 1 },
		"a batch behind itself":            func(in *kmutex.Install) { in.Parent, in.Batches[0].Next.Node = 2, 1 },
		"a closed last batch":              func(in *kmutex.Install) { in.Batches[0].Next.Node = 2 },
		"a request is missing":             func(in *kmutex.Install) { in.Batches[0].Requests = in.Batches[0].Requests[:2] },
		"a request twice":                  func(in *kmutex.Install) { in.Batches[0].Requests[1] = in.Batches[0].Requests[2] },
		"an adopted one twice":             func(in *kmutex.Install) { in.Batches[0].Requests[0] = in.Running[1].Request },
		"a foreign request":                func(in *kmutex.Install) { in.Batches[0].Requests[1] = 9 },
		"a waiting one runs":               func(in *kmutex.Install) { in.Running[1].Request = 2 },
		"a running one is lost":            func(in *kmutex.Install) { in.Running = in.Running[1:] },
		"another token":                    func(in *kmutex.Install) { in.Running[0].Token = 5 },
		"no token":                         func(in *kmutex.Install) { in.Running[1].Token = kmutex.NoToken },
		"a token too large":                func(in *kmutex.Install) { in.Running[1].Token = kmutex.MaxK },
		"a token twice":                    func(in *kmutex.Install) { in.Running[1].Token = in.Running[0].Token },
		"a free one runs":                  func(in *kmutex.Install) { in.Free.Add(in.Running[0].Token) },
		"a free one of k":                  func(in *kmutex.Install) { in.Free.Add(2) },
		"an excess of a class that is not": func(in *kmutex.Install) { in.Excess = []uint32{1, 1} },
		"another serial":                   func(in *kmutex.Install) { in.Running[0].Serial++ },
	} {
		for _, b := range []kmutex.Binding{new(coordinator.Late), new(coordinator.Early)} {
			m, in := frozen(t, b)
			spoil(in)
			before := fmt.Sprint(m.State())
			if _, err := m.Step(&kmutex.Event{Kind: kmutex.EventInstall, Install: in}); !errors.Is(err, kmutex.ErrInstall) {
				t.Errorf("%s: %T: error %v", name, b, err)
			}
			if after := fmt.Sprint(m.State()); after != before {
				t.Errorf("%s: %T: refused, and changed\n%s\n%s", name, b, before, after)
			}
		}
	}
}

// An adopted request is known from then on: an install can neither adopt it again nor leave it out.
func TestAdoptedOnce(t *testing.T) {
	m, in := frozen(t, new(coordinator.Late))
	step := func(e kmutex.Event) (*kmutex.Effects, error) { return m.Step(&e) }
	fx, err := step(kmutex.Event{Kind: kmutex.EventInstall, Install: in})
	if err != nil {
		t.Fatal(err)
	}
	if trace := fmt.Sprint(fx.Trace); strings.Count(trace, "adopted") != 2 {
		t.Errorf("trace %v, want two adopted requests", trace)
	}
	for _, request := range []kmutex.Request{slotOf(1).Request, slotOf(1).Request + 1} {
		if _, err = step(kmutex.Event{Kind: kmutex.EventCancel, Request: request}); err != nil {
			t.Fatal(err)
		}
	}
	fx, err = step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: 3, K: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := *fx.Report
	r.Waiting = append(r.Waiting, kmutex.ReportedBatch{Requests: []kmutex.Request{slotOf(1).Request}})
	installs, err := kmutex.PlanEpoch(kmutex.EpochChange{Epoch: 3, K: 2, Home: 1}, []kmutex.Report{r})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = step(kmutex.Event{Kind: kmutex.EventInstall, Install: installs[0]}); !errors.Is(err, kmutex.ErrInstall) {
		t.Errorf("a request that was here before is taken over again: error %v", err)
	}
}
