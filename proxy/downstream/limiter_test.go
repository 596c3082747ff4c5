package downstream

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// asked is a connection that leaves, or stays, when the test says so.
type asked struct {
	entry
	leave atomic.Bool // it has been asked to
}

func (a *asked) askToLeave() { a.leave.Store(true) }
func (a *asked) askToStay()  { a.leave.Store(false) }

// arrive has one more connection enter, and returns it with a channel that is closed when it is in.
func arrive(c *limiter) (*asked, <-chan struct{}) {
	a, in := new(asked), make(chan struct{})
	a.conn = a
	go func() {
		c.enter(&a.entry, new(listener))
		close(in)
	}()
	return a, in
}

// keep has a connection enter, and be idle after a request.
func keep(c *limiter) *asked {
	a, in := arrive(c)
	<-in
	c.becomes(&a.entry, busy)
	c.becomes(&a.entry, idle)
	return a
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestIdleMakeRoom: a new client gets the place of the connection that has been idle longest, and of
// no other.
func TestIdleMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLimiter(2, slog.New(slog.DiscardHandler))
		first := keep(c)
		time.Sleep(time.Millisecond)
		second := keep(c)
		_, in := arrive(c)
		time.Sleep(keptFor - 2*time.Millisecond)
		if isClosed(in); first.leave.Load() {
			t.Error("one that has just become idle is asked to leave")
		}
		time.Sleep(time.Second)
		if isClosed(in) || !first.leave.Load() || second.leave.Load() {
			t.Fatalf("entered: %v; asked to leave: %v, %v", isClosed(in), first.leave.Load(), second.leave.Load())
		}
		// Its request crosses.
		c.becomes(&first.entry, busy)
		if isClosed(in); first.leave.Load() || !second.leave.Load() {
			t.Errorf("one has a request: asked to leave: %v, %v", first.leave.Load(), second.leave.Load())
		}
		c.leave(&second.entry)
		c.leave(&second.entry)
		if !isClosed(in) || c.connections() != 2 {
			t.Errorf("%d connections are open", c.connections())
		}
		_, in = arrive(c)
		if time.Sleep(time.Hour); isClosed(in) || first.leave.Load() {
			t.Error("one with a request makes room")
		}
		c.leave(&first.entry)
		<-in
	})
}

// TestManyIdleMakeRoom: where many are idle, a few more than wait are asked to leave.
func TestManyIdleMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLimiter(20, slog.New(slog.DiscardHandler))
		var all []*asked
		for range c.limit {
			all = append(all, keep(c))
		}
		_, in := arrive(c)
		time.Sleep(time.Second)
		synctest.Wait()
		leaving := 0
		for _, a := range all {
			if a.leave.Load() {
				leaving++
			}
		}
		if leaving != 3 {
			t.Errorf("%d are asked to leave, want 3", leaving)
		}
		c.leave(&all[0].entry)
		<-in
	})
}

// newcomer has a connection enter that says nothing.
func newcomer(c *limiter, from string) *asked {
	a := new(asked)
	a.conn, a.from = a, netip.MustParseAddr(from)
	c.enter(&a.entry, new(listener))
	return a
}

// TestNewcomersMakeRoom: of connections that have sent no whole request, the oldest of the address
// with most of them makes room first. All of them do before an idle one, and no busy one does.
func TestNewcomersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood, honest = "192.0.2.1", "192.0.2.2"
		c := newLimiter(6, slog.New(slog.DiscardHandler))
		slow := newcomer(c, honest) // the oldest of all
		idle := keep(c)
		c.becomes(&newcomer(c, flood).entry, busy)
		half := keep(c) // after a request, the half of another
		half.from = netip.MustParseAddr(flood)
		c.becomes(&half.entry, fresh)
		time.Sleep(time.Millisecond)
		first := newcomer(c, flood)
		time.Sleep(time.Millisecond)
		second := newcomer(c, flood)
		time.Sleep(freshFor)
		for i, want := range []*asked{half, first, slow, second, idle} {
			next, in := arrive(c)
			if isClosed(in) || !want.leave.Load() {
				t.Fatalf("%d: entered: %v; asked to leave: %v", i, isClosed(in), want.leave.Load())
			}
			c.leave(&want.entry)
			<-in
			c.becomes(&next.entry, busy)
		}
		_, in := arrive(c)
		if time.Sleep(time.Hour); isClosed(in) {
			t.Error("one with a request makes room")
		}
		c.leave(&slow.entry) // again
		c.mu.Lock()
		c.limit++
		c.changed.Broadcast()
		c.mu.Unlock()
		<-in
	})
}

// TestNewcomersHaveTime: a new connection makes room after an idle one while it is young, if its
// address has others, and not at all when it has just come.
func TestNewcomersHaveTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = "192.0.2.1"
		c := newLimiter(3, slog.New(slog.DiscardHandler))
		first, second, idle := newcomer(c, flood), newcomer(c, flood), keep(c)
		_, in := arrive(c)
		if time.Sleep(keptFor - 1); isClosed(in) || first.leave.Load() || idle.leave.Load() {
			t.Error("one that has just come is asked to leave")
		}
		if time.Sleep(time.Nanosecond); isClosed(in) || first.leave.Load() || !idle.leave.Load() {
			t.Error("the idle one is not asked")
		}
		c.becomes(&idle.entry, busy) // its request crosses
		if isClosed(in) || !first.leave.Load() {
			t.Error("the new one is not asked")
		}
		c.becomes(&first.entry, busy) // its request, too
		if time.Sleep(freshFor - keptFor - 1); isClosed(in) || second.leave.Load() {
			t.Error("the only one of its address is asked before its time")
		}
		if time.Sleep(time.Nanosecond); isClosed(in) || !second.leave.Load() {
			t.Error("the only one of its address is not asked")
		}
		c.leave(&second.entry)
		<-in
	})
}

// TestWindDown: at the end of the server a connection that waits for a request has its time for
// one more, and leaves then.
func TestWindDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLimiter(0, slog.New(slog.DiscardHandler))
		young, kept, used := newcomer(c, "192.0.2.1"), keep(c), keep(c)
		c.becomes(&used.entry, busy)
		time.Sleep(time.Millisecond)
		c.windDown(lastRequestTime)
		if time.Sleep(lastRequestTime - 2*time.Millisecond); young.leave.Load() || kept.leave.Load() {
			t.Error("it is asked to leave before its time")
		}
		time.Sleep(2 * time.Millisecond)
		if synctest.Wait(); !young.leave.Load() || !kept.leave.Load() || used.leave.Load() {
			t.Errorf("asked to leave: %v, %v, %v", young.leave.Load(), kept.leave.Load(), used.leave.Load())
		}
		c.becomes(&used.entry, idle)
		time.Sleep(lastRequestTime)
		if synctest.Wait(); !used.leave.Load() {
			t.Error("it stays when it is idle again")
		}
	})
}
