// Package stall measures for how long the machine has kept a process from running, for
// tests that judge times. What is promised is promised for a machine that has time; a test
// that bounds a time adds what the machine took, and needs no allowance beside it.
package stall

import (
	"os"
	"sync"
	"time"
)

const (
	// nap is how long the meter sleeps each time.
	nap = 2 * time.Millisecond
	// usual is how late timers are on a machine that has nothing else to do.
	usual = time.Millisecond
)

// Meter sleeps again and again, and adds up how much too late it wakes. What runs in many
// short steps, as a gateway does, is late by as much at each step; it takes fewer of them
// than the meter, so the sum is no less than what the machine has cost it. It cannot tell a
// machine that stands from goroutines of its own process that compute without a pause: with
// one on each processor it measures nine tenths of the time. A test that it excuses has to
// wait for most of its time. The meter's methods are safe for concurrent use.
type Meter struct {
	quit, done chan struct{}
	mu         sync.Mutex
	late       []lateness // in the order of their ends
}

// lateness is a time for which the meter should have run and did not.
type lateness struct {
	until time.Time
	took  time.Duration
}

// Strict is an environment variable. If it is set, nothing that a meter measures excuses a
// test: a defect is planted, and the test has to find it.
const Strict = "KGATE_TEST_STRICT"

// Start begins to measure.
func Start() *Meter {
	m := &Meter{quit: make(chan struct{}), done: make(chan struct{})}
	if os.Getenv(Strict) != "" {
		close(m.done)
		return m
	}
	go m.run()
	return m
}

func (m *Meter) run() {
	defer close(m.done)
	timer := time.NewTimer(nap)
	defer timer.Stop()
	for due := time.Now().Add(nap); ; due = time.Now().Add(nap) {
		timer.Reset(nap)
		select {
		case <-m.quit:
			return
		case <-timer.C:
			m.note(due, time.Now())
		}
	}
}

func (m *Meter) note(due, now time.Time) {
	took := now.Sub(due)
	if took <= usual {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = append(m.late, lateness{now, took})
}

// Between returns how long in all the machine has kept the process from running between
// two times.
func (m *Meter) Between(from, to time.Time) (sum time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.late) - 1; i >= 0 && m.late[i].until.After(from); i-- {
		l := m.late[i]
		first, last := l.until.Add(-l.took), l.until
		if first.Before(from) {
			first = from
		}
		if last.After(to) {
			last = to
		}
		sum += max(0, last.Sub(first))
	}
	return sum
}

// Worst returns the most by which the machine has kept the process from running within
// any time of that length since t.
func (m *Meter) Worst(t time.Time, length time.Duration) (worst time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum, first := time.Duration(0), 0
	for i, l := range m.late {
		sum += l.took
		for ; first <= i && (m.late[first].until.Before(t) || m.late[first].until.Before(l.until.Add(-length))); first++ {
			sum -= m.late[first].took
		}
		worst = max(worst, sum)
	}
	return worst
}

// Stop ends the measurement.
func (m *Meter) Stop() {
	close(m.quit)
	<-m.done
}
