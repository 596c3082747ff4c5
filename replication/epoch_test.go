package replication

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

func formed(t *testing.T, f kmutex.EpochChange, lost []Lost, reports ...EpochReport) *EpochChange {
	t.Helper()
	var members []kmutex.Node
	for _, r := range reports {
		members = append(members, r.Node)
	}
	forming := NewEpochChange(f, members, lost, admission.MaxTTL)
	for i, r := range reports {
		if forming.Planned() {
			t.Fatalf("planned after %d of %d reports", i, len(reports))
		}
		for range 2 { // an answer that was lost
			if err := forming.Admit(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !forming.Planned() || len(forming.Missing()) != 0 {
		t.Fatal("not planned with all reports")
	}
	return forming
}

func told(n kmutex.Node, running ...kmutex.Grant) EpochReport {
	return EpochReport{Report: kmutex.Report{Node: n, Epoch: 2, Installed: 1, Tokens: kmutex.NewTokenSet(2), Running: running}}
}

// A token that two tickets run with does not stop the epoch from beginning: the second ticket runs
// beyond k until it ends.
func TestDoubledToken(t *testing.T) {
	f := formed(t, kmutex.EpochChange{Epoch: 2, K: 2, Home: 1}, nil,
		told(1, kmutex.Grant{Request: 1, Token: 1}), told(2, kmutex.Grant{Request: 1, Token: 1}, kmutex.Grant{Request: 2, Token: 0}))
	if got := f.Doubled(); len(got) != 1 || got[0] != 1 {
		t.Errorf("doubled: %v", got)
	}
	one, two := f.Answer(1).Install, f.Answer(2).Install
	if one.Running[0].Token != 1 || two.Running[0].Token < 2 || two.Running[1].Token != 0 {
		t.Errorf("running: %v and %v", one.Running, two.Running)
	}
	if one.Free.Len()+two.Free.Len() > 0 {
		t.Errorf("free while three run: %v and %v", one.Free, two.Free)
	}
}

// More doubled tokens than there are numbers are nonsense, and refused as such.
func TestNothingButDoubledTokens(t *testing.T) {
	nonsense := told(2)
	for n := range kmutex.MaxK + 100 {
		nonsense.Running = append(nonsense.Running, kmutex.Grant{Request: kmutex.Request(1 + n)})
	}
	f := NewEpochChange(kmutex.EpochChange{Epoch: 2, K: 2, Home: 1}, []kmutex.Node{1, 2}, nil, admission.MaxTTL)
	if err := f.Admit(told(1)); err != nil {
		t.Fatal(err)
	}
	if err := f.Admit(nonsense); err == nil {
		t.Error("an epoch was planned of it")
	}
}

// Reports of another epoch, or of a gateway that is not awaited, change nothing.
func TestReportsThatDoNotCount(t *testing.T) {
	f := NewEpochChange(kmutex.EpochChange{Epoch: 2, K: 2, Home: 1}, []kmutex.Node{1, 2}, nil, admission.MaxTTL)
	old := told(1)
	old.Epoch = 1
	if err := f.Admit(old); err == nil {
		t.Error("a report for another epoch was taken")
	}
	if err := f.Admit(told(7)); err != nil || len(f.Missing()) != 2 || f.Answer(7) != nil {
		t.Errorf("a stranger's report: %v, %v awaited", err, f.Missing())
	}
}

// onWire returns what arrives of u.
func onWire(t *testing.T, u Unknown) (arrived Unknown) {
	t.Helper()
	data, err := json.Marshal(u)
	if err := errors.Join(err, json.Unmarshal(data, &arrived), arrived.Validate()); err != nil {
		t.Fatal(err)
	}
	return arrived
}

// Unknown tickets withhold the tokens that were missing when the tickets were first known to be
// unknown, not tokens that a later loss takes along.
func TestUnknownClaimsNoLaterLoss(t *testing.T) {
	var memory Unknown
	plan := func(epoch uint64, owed bool, missing ...kmutex.Token) *kmutex.Install {
		r := EpochReport{Report: kmutex.Report{Node: 1, Epoch: epoch, Installed: epoch - 1, Tokens: kmutex.NewTokenSet(4), Free: kmutex.NewTokenSet(4)}}
		for _, q := range missing {
			r.Free.Remove(q)
		}
		r.Bounds = memory.Message(time.Minute)
		f := NewEpochChange(kmutex.EpochChange{Epoch: epoch, K: 4, Home: 1, Owed: owed}, []kmutex.Node{1}, []Lost{{Node: 9, Successor: 1}}, admission.MaxTTL)
		if err := f.Admit(r); err != nil {
			t.Fatal(err)
		}
		memory.Learn(onWire(t, f.Answer(1).Bounds), time.Minute)
		return f.Answer(1).Install
	}
	for i, c := range []struct {
		owed    bool
		missing []kmutex.Token
		want    string
	}{
		{true, []kmutex.Token{1, 2}, "{1,2}"},
		{false, []kmutex.Token{1, 2}, "{1,2}"},
		{true, []kmutex.Token{0, 1, 2}, "{0,1,2}"}, // another one is lost
		{false, []kmutex.Token{0, 1, 2}, "{1,2}"},  // and its lease is over
		{false, []kmutex.Token{1, 2, 3}, "{1,2}"},  // token 3 is on its way
		{false, []kmutex.Token{1}, "{1}"},          // a living gateway has token 2 after all
		{false, []kmutex.Token{1, 2}, "{1}"},
		{false, nil, "{}"}, // all are there
		{false, []kmutex.Token{1, 2}, "{}"},
	} {
		if got := plan(uint64(2+i), c.owed, c.missing...).Withheld.String(); got != c.want {
			t.Errorf("%v missing, owed: %t: withheld %s, want %s", c.missing, c.owed, got, c.want)
		}
	}
}

// The time that a lost gateway's tickets have been unknown counts on when the gateways that knew it
// first are lost in their turn.
func TestUnknownOutlivesWhoKnewFirst(t *testing.T) {
	const life = 3 * time.Second // of a gateway; each but the first meets its predecessor
	var before *Unknown
	for n := range 5 {
		now, memory := time.Duration(n)*life, new(Unknown)
		var reports []EpochReport
		for i, u := range []*Unknown{before, memory} {
			if u != nil {
				r := told(kmutex.Node(i + 1))
				r.Bounds = u.Message(now)
				reports = append(reports, r)
			}
		}
		f := formed(t, kmutex.EpochChange{Epoch: 2, K: 2, Home: 2}, []Lost{{Node: 9, Successor: 2}}, reports...)
		memory.Learn(f.Answer(2).Bounds, now)
		if since := (*memory)[9].Since; since != 0 {
			t.Errorf("gateway %d knows it since %v", n, since)
		}
		before = memory
	}
}

// The successor of a lost gateway gets its tickets: the granted ticket runs on with a withheld
// token, the waiting ticket keeps its place. Unknown tickets withhold the missing tokens.
func TestHandOverInTheEpoch(t *testing.T) {
	dead := NewTable(3)
	ids := []string{NewID([16]byte{1}, 3), NewID([16]byte{2}, 3)}
	for i, r := range []Record{
		{ID: ids[0], Stamp: 1, TTL: admission.MinTTL, State: admission.TicketGranted, Token: 0, Fence: Fence{1, 7}},
		{ID: ids[1], Stamp: 5, TTL: admission.MinTTL, State: admission.TicketWaiting},
	} {
		if _, err := dead.Put(r); err != nil {
			t.Fatal(i, err)
		}
	}
	lost := []Lost{{Node: 3, Successor: 2}, {Node: 4, Successor: 2}}
	here := told(1, kmutex.Grant{Request: 1, Token: 1})
	here.Waiting = []kmutex.ReportedBatch{{Stamp: 9, Requests: []kmutex.Request{2}}}
	here.Left = &Report{Node: 1, Replicas: []*Delta{dead.Since(0)}}
	successor := told(2)
	successor.Left = &Report{Node: 2}
	f := formed(t, kmutex.EpochChange{Epoch: 2, K: 2, Home: 1}, lost, here, successor)
	if _, unknown := f.Unknown()[4]; len(f.Unknown()) != 1 || !unknown {
		t.Errorf("unknown: %v", f.Unknown())
	}
	a := f.Answer(2)
	if len(a.HandOvers) != 1 || len(a.HandOvers[0].Tickets) != 2 || len(f.Answer(1).HandOvers) != 0 {
		t.Fatalf("hand-overs: %+v", a.HandOvers)
	}
	run := a.Install.Running
	if len(run) != 1 || run[0].Request != a.HandOvers[0].Tickets[0] || run[0].Token != 0 || run[0].Serial != 7 {
		t.Errorf("running at the successor: %+v", run)
	}
	if a.Install.Holder != 2 || a.Install.Batches[0].Requests[0] != a.HandOvers[0].Tickets[1] {
		t.Errorf("the older ticket is not first in line: %+v", a.Install)
	}
}

// What is learned changes no set of who tells it: it may be an epoch's withheld tokens.
func TestUnknownKeepsItsHandsOff(t *testing.T) {
	var u Unknown
	told := kmutex.NewTokenSet(2)
	u.Learn(Unknown{9: {Bounded: true, Tokens: kmutex.NewTokenSet(1)}}, 0)
	u.Learn(Unknown{9: {Bounded: true, Tokens: told}}, 0)
	if told.Len() != 2 || u[9].Tokens.Len() != 1 {
		t.Errorf("told %v, remembered %v", told, u[9].Tokens)
	}
}
