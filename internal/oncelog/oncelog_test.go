package oncelog

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOncePerCauseAndMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		expect := func(cause string, suppressed int, ok bool) {
			t.Helper()
			if s, o := l.Allow(cause); s != suppressed || o != ok {
				t.Errorf("%s: %d left out, allowed %t; want %d, %t", cause, s, o, suppressed, ok)
			}
		}
		expect("frame", 0, true)
		expect("frame", 0, false)
		expect("plaintext", 0, true)
		time.Sleep(Period - 1)
		expect("frame", 0, false)
		time.Sleep(time.Nanosecond)
		expect("frame", 2, true)
		expect("frame", 0, false)
		time.Sleep(Period)
		expect("frame", 1, true)
	})
}

func TestBounded(t *testing.T) {
	var l Limit
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				if !l.First(strconv.Itoa(g*1000 + i)) {
					t.Error("a new cause is not logged")
				}
			}
		})
	}
	wg.Wait()
	if n := len(l.seen); n > maxCauses {
		t.Errorf("%d causes kept", n)
	}
}
