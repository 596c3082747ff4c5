package telemetry

import (
	"testing"
	"time"
)

// TestUpstream: recent counts are of the last minute, usual times of the time before.
func TestUpstream(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := New(nil, Config{Now: func() time.Time { return now }})
	u := m.AddPool("a").AddUpstream("http://10.0.1.1:80")
	for range 300 {
		u.Ended(Result2xx, 50*time.Millisecond)
		now = now.Add(time.Second)
	}
	for range 60 {
		u.Ended(Result5xx, time.Second)
		u.Ended(ResultDial, 0)
		u.Ended(ResultLeft, 0)
		now = now.Add(time.Second)
	}
	now = now.Add(-time.Second)
	if got, want := u.Recent(), (Recent{Ended: 120, Errors: 60, Failed: 60}); got != want {
		t.Errorf("recent: %+v, want %+v", got, want)
	}
	header, usual := u.Headers()
	if header.Mean() != time.Second || usual.Mean() != 50*time.Millisecond || usual.Count < 280 {
		t.Errorf("header %v, usual %v of %d", header.Mean(), usual.Mean(), usual.Count)
	}
	now = now.Add(time.Minute)
	if got := u.Recent(); got != (Recent{}) {
		t.Errorf("a minute later: %+v", got)
	}
}
