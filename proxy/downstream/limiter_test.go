package downstream

import (
	"log/slog"
	"net/http"
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

// keep has an HTTP/1 connection enter, and be idle after a request.
func keep(c *limiter) *asked {
	a, in := arrive(c)
	<-in
	c.served(&a.entry)
	c.state(&a.entry, http.StateActive)
	c.state(&a.entry, http.StateIdle)
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
		c := newLimiter(2, time.Hour, slog.New(slog.DiscardHandler))
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
		c.heard(&first.entry)
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
		c := newLimiter(20, time.Hour, slog.New(slog.DiscardHandler))
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

// TestRequestBegins: a connection over which a request has begun to come does not count as idle,
// whatever net/http says.
func TestRequestBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLimiter(1, time.Hour, slog.New(slog.DiscardHandler))
		kept := keep(c)
		c.heard(&kept.entry)
		_, in := arrive(c)
		if time.Sleep(time.Hour); isClosed(in) || kept.leave.Load() {
			t.Error("it is asked to leave")
		}
		c.state(&kept.entry, http.StateActive)
		c.state(&kept.entry, http.StateIdle)
		if time.Sleep(time.Second); isClosed(in) || !kept.leave.Load() {
			t.Error("it is not asked to leave when it is idle again")
		}
		c.leave(&kept.entry)
		<-in
	})
}

// TestFirstRequestHasTime: an HTTP/2 connection of which only the preface has come, net/http calls idle. It is
// not when another wants its place, until the time for a header is over.
func TestFirstRequestHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = time.Minute
		c := newLimiter(1, silence, slog.New(slog.DiscardHandler))
		fresh, in := arrive(c)
		<-in
		preface := func(a *asked) {
			c.state(&a.entry, http.StateNew)
			c.state(&a.entry, http.StateActive)
			c.state(&a.entry, http.StateIdle)
		}
		preface(fresh)
		next, in := arrive(c)
		if time.Sleep(silence - time.Second); isClosed(in) || fresh.leave.Load() {
			t.Error("it is asked to leave before its first request")
		}
		if time.Sleep(2 * time.Second); isClosed(in) || !fresh.leave.Load() {
			t.Error("it stays without a request")
		}
		c.leave(&fresh.entry)
		<-in
		preface(next)
		c.state(&next.entry, http.StateActive)
		_, in = arrive(c)
		if time.Sleep(2 * silence); isClosed(in) || next.leave.Load() {
			t.Error("it is asked to leave during its first request")
		}
		c.state(&next.entry, http.StateIdle)
		if time.Sleep(time.Second); !next.leave.Load() {
			t.Error("it is not asked to leave after its request")
		}
		c.leave(&next.entry)
		<-in
	})
}
