package handover_test

import (
	"math"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/handover"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/elmp"
)

func config(server bool) handover.Config {
	c := handover.Config{
		Seed: 1, Protocol: elmp.Spec(), Server: server, Peers: 20, Delay: 100 * time.Microsecond, Transfer: 400 * time.Millisecond,
		Locked: time.Second, Cycles: 10, Skip: 2,
	}
	if server {
		c.Protocol = central.Spec()
	}
	return c
}

// A saturated cycle is the queue's length times lock, fetch and hand-over, over
// both kinds of lock. Work hides the wait until there is none left.
func TestCycle(t *testing.T) {
	for _, server := range []bool{false, true} {
		c := config(server)
		for work, blocking := range map[time.Duration]time.Duration{0: 27 * time.Second, 5 * time.Second: 22 * time.Second, time.Minute: c.Fetch()} {
			c.Work = work
			r, err := handover.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			if off := r.Blocking - blocking; off.Abs() > 20*time.Millisecond {
				t.Errorf("server %v, work %v: blocked for %v, want %v", server, work, r.Blocking, blocking)
			}
			if r.Cycle != r.Wait+c.Locked || r.Wait < r.Blocking || math.Abs(r.Queue-19) > .1 {
				t.Errorf("server %v, work %v: %+v", server, work, r)
			}
		}
	}
}

// One peer that works for longer than it waits holds up all others, unless it passes
// on a lock that it cannot use yet.
func TestUnusedLock(t *testing.T) {
	for yield, cycle := range map[bool]time.Duration{false: time.Minute + 1400*time.Millisecond, true: 28 * time.Second} {
		c := config(false)
		c.Workers, c.Work, c.Yield = 1, time.Minute, yield
		r, err := handover.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if off := r.Cycle - cycle; off.Abs() > 2*time.Second {
			t.Errorf("yields %v: the others' cycle takes %v, not %v", yield, r.Cycle, cycle)
		}
	}
}

// Peers that leave cost those behind them a fetch each.
func TestLeavers(t *testing.T) {
	c := config(false)
	c.Cycles, c.Skip, c.Leavers = 1, 0, 10
	with, err := handover.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Absent = true
	without, err := handover.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if more := with.Cycle - without.Cycle; with.Cycles != 10 || more < time.Second || more > 3*time.Second {
		t.Errorf("ten departures cost %v: %+v, without them %+v", more, with, without)
	}
}
