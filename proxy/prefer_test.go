package proxy

import (
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/http1"
)

func TestQueueTimeout(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		limit   time.Duration
		prefer  []string
		want    time.Duration
		applied int
	}{
		{minute, nil, minute, -1},
		{minute, []string{"wait=10"}, 10 * time.Second, 10},
		{minute, []string{"Wait = 10"}, 10 * time.Second, 10},
		{minute, []string{`wait="10"`}, 10 * time.Second, 10},
		{minute, []string{"respond-async, wait=10; x=y"}, 10 * time.Second, 10},
		{minute, []string{"respond-async", "wait=10, wait=5"}, 10 * time.Second, 10},
		{minute, []string{"wait=60"}, minute, -1},
		{minute, []string{"wait=100"}, minute, -1}, // never longer
		{minute, []string{"wait=99999999999999999999"}, minute, -1},
		{minute, []string{"wait=0"}, minWait, 0},
		{minute, []string{"wait=-1"}, minute, -1},
		{minute, []string{"wait=1.5"}, minute, -1},
		{minute, []string{"wait="}, minute, -1},
		{minute, []string{`wait="`}, minute, -1},
		{minute, []string{"wait"}, minute, -1},
		{minute, []string{"await=1"}, minute, -1},
		{minute, []string{",;=,"}, minute, -1},
		{-1, nil, -1, -1},
		{-1, []string{"wait=10"}, 10 * time.Second, 10},
		{-1, []string{"wait=99999999999999999999"}, (1<<31 - 1) * time.Second, 1<<31 - 1},
		{time.Millisecond, []string{"wait=0"}, time.Millisecond, -1},
	} {
		var came http1.Fields
		for _, line := range tt.prefer {
			came.Add("Prefer", line)
		}
		wait, applied := queueTimeout(tt.limit, came)
		if wait != tt.want || applied != tt.applied {
			t.Errorf("limit %v, Prefer %q: %v, %d, want %v, %d", tt.limit, tt.prefer, wait, applied, tt.want, tt.applied)
		}
	}
}
