package kmutex_test

import (
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
)

// While a machine is frozen it keeps what waits, and nothing of requests that come
// and go.
func TestDeferredIsBounded(t *testing.T) {
	m := kmutex.New(1, new(coordinator.Late))
	step := func(e kmutex.Event) *kmutex.Effects {
		t.Helper()
		fx, err := m.Step(&e)
		if err != nil {
			t.Fatal(err)
		}
		return fx
	}
	step(kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: 1, Home: 1}, 1)})
	step(kmutex.Event{Kind: kmutex.EventAcquire, Request: 1})
	step(kmutex.Event{Kind: kmutex.EventAcquire, Request: 2})
	report := step(kmutex.Event{Kind: kmutex.EventFreeze, Epoch: 2, K: 1}).Report
	for n := kmutex.Request(3); n < 10_000; n++ {
		step(kmutex.Event{Kind: kmutex.EventAcquire, Request: n})
		if n%100 != 0 {
			step(kmutex.Event{Kind: kmutex.EventCancel, Request: n})
		}
		step(kmutex.Event{Kind: kmutex.EventAskDue})
	}
	step(kmutex.Event{Kind: kmutex.EventCancel, Request: 2})
	step(kmutex.Event{Kind: kmutex.EventRelease, Request: 1})
	if s := m.State(); len(s.Deferred) != 2 || len(s.Arrived) != 99 {
		t.Errorf("%d events deferred, %d requests have arrived, want 2 and 99", len(s.Deferred), len(s.Arrived))
	}
	installs, err := kmutex.PlanEpoch(kmutex.EpochChange{Epoch: 2, K: 1, Home: 1}, []kmutex.Report{*report})
	if err != nil {
		t.Fatal(err)
	}
	fx := step(kmutex.Event{Kind: kmutex.EventInstall, Install: installs[0]})
	if len(fx.Grants) != 1 || fx.Grants[0].Request != 100 {
		t.Errorf("granted: %+v, want the first that stayed", fx.Grants)
	}
}
