package replication

import (
	"encoding/json"
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// FuzzEpochReport lets a peer report anything: the epoch is planned or refused, and the machine of
// an honest member can begin with its answer.
func FuzzEpochReport(f *testing.F) {
	left := NewReport(NewReplicator(NewTable(2)), NewReplicaSet(), func(kmutex.Node) bool { return true })
	for _, r := range []EpochReport{
		told(2), told(2, kmutex.Grant{Request: 1, Token: 0, Serial: 7}),
		{Report: kmutex.Report{Node: 2, Epoch: 2, Waiting: []kmutex.ReportedBatch{{Stamp: 5, Requests: []kmutex.Request{1, 2}}}}, Left: &left},
		{Report: kmutex.Report{Node: 2, Epoch: 2, Installed: 1, MaxK: 9, Free: kmutex.NewTokenSet(2), Unplanned: []uint64{1}}},
	} {
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true)
		f.Add(data, false)
	}
	f.Add([]byte(`{"Node":2,"Epoch":2,"Installed":1,"Running":[{"Ticket":1,"Token":-65}],"Left":{"node":2}}`), true)
	f.Add([]byte(`{"Node":2,"Epoch":2,"Installed":1,"Running":[{"Ticket":1,"Token":2147483647}]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, lost bool) {
		var r EpochReport
		if json.Unmarshal(data, &r) != nil {
			return
		}
		home := kmutex.New(1, new(coordinator.Late))
		step(t, home, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: 2, Home: 1}, 1)})
		step(t, home, kmutex.Event{Kind: kmutex.EventAcquire, Request: 1})
		own := EpochReport{Report: *step(t, home, kmutex.Event{Kind: kmutex.EventFreeze, Epoch: 2, K: 2}).Report}
		own.Left = &left
		var gone []Lost
		if lost {
			gone = []Lost{{Node: 3, Successor: 1}, {Node: 4, Successor: 2, Over: true}}
		}
		forming := NewEpochChange(kmutex.EpochChange{Epoch: 2, K: 2, Home: 1}, []kmutex.Node{1, 2}, gone, admission.MaxTTL)
		if err := forming.Admit(own); err != nil {
			t.Fatal(err)
		}
		if forming.Admit(r) != nil || !forming.Planned() {
			return
		}
		a := forming.Answer(1)
		if a == nil {
			t.Fatal("no answer for an honest member")
		}
		if _, err := home.Step(&kmutex.Event{Kind: kmutex.EventInstall, Install: a.Install}); err != nil {
			t.Errorf("home cannot begin with its own plan: %v", err)
		}
	})
}

func step(t *testing.T, m *kmutex.Machine, e kmutex.Event) *kmutex.Effects {
	t.Helper()
	fx, err := m.Step(&e)
	if err != nil {
		t.Fatal(err)
	}
	return fx
}

// FuzzParseID: an id has one spelling, and tells its owner.
func FuzzParseID(f *testing.F) {
	f.Add(NewID([16]byte{1}, 7))
	f.Add(NewID([16]byte{15: 255}, 1<<63))
	f.Add("aeaaaaaaaaaaaaaaaaaaaaaa74-0")
	f.Fuzz(func(t *testing.T, id string) {
		owner, err := ParseID(id)
		if err != nil {
			return
		}
		if owner == 0 || len(id) > 64 {
			t.Errorf("%q is node %d's", id, owner)
		}
	})
}
