package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// queue has n requests ask at a gateway, a second apart, and returns what
// becomes of each. They keep their slots until the test ends.
func standInLine(t *testing.T, at *node, n int) []chan error {
	t.Helper()
	var out []chan error
	for i := range n {
		ended := make(chan error, 1)
		out = append(out, ended)
		go func() {
			note := &admission.RequestInfo{Method: "GET", Path: fmt.Sprintf("/%d", i), Remote: netip.MustParseAddr("192.0.2.1"), Trace: fmt.Sprintf("trace-%d", i)}
			s, err := at.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1, Info: note})
			ended <- err
			if err == nil {
				<-t.Context().Done()
				s.Release()
			}
		}()
		synctest.Wait()
		time.Sleep(time.Second)
	}
	return out
}

// TestLine: who is in the pool is listed in order with what is known of it, and
// who waits can be sent away, alone.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 2, admission.BindingLate, time.Millisecond, PoolConfig{})
		at := f.all()[0]
		ended := standInLine(t, at, 6)
		line := at.Line(testPool, 3)
		if len(line.Holding) != 2 || len(line.Waiting) != 3 {
			t.Fatalf("%d hold, %d of 4 wait; want 2 and the 3 asked for", len(line.Holding), len(line.Waiting))
		}
		for i, e := range append(line.Holding, line.Waiting...) {
			want := admission.RequestInfo{Method: "GET", Path: fmt.Sprintf("/%d", i), Remote: netip.MustParseAddr("192.0.2.1"), Trace: fmt.Sprintf("trace-%d", i)}
			if e.Info != want || e.For != time.Duration(6-i)*time.Second || e.Ticket {
				t.Errorf("entry %d: %+v", i, e)
			}
		}
		if got := at.Oldest(testPool); got != 4*time.Second {
			t.Errorf("the oldest has waited %v", got)
		}
		if n, _ := at.Position(t.Context(), testPool, line.Waiting[1].Arrived); n != 2 {
			t.Errorf("the second is at position %d", n)
		}
		if pool, found := at.FindTrace("trace-3"); pool != testPool || len(found.Waiting) != 1 || found.Waiting[0].ID != line.Waiting[1].ID {
			t.Errorf("found by its trace: %s, %+v", pool, found)
		}
		if err := at.Cancel(line.Waiting[1].ID); err != nil {
			t.Error(err)
		}
		if err := <-ended[3]; !errors.Is(err, admission.Cancelled) {
			t.Errorf("who was sent away gets: %v", err)
		}
		for _, id := range []string{
			line.Waiting[1].ID, line.Holding[0].ID, "", "x", "x.1.1", testPool + ".1", testPool + ".1.x", testPool + ".x.1",
			testPool + ".1.99999999999999999999", testPool + ".2.4", ".1.1",
		} {
			if err := at.Cancel(id); !errors.Is(err, errUnknownEntry) {
				t.Errorf("cancel of %q: %v", id, err)
			}
		}
		if s := at.Status(testPool); s.Waiting != 3 || s.InFlight != 2 {
			t.Errorf("%d wait and %d hold after it", s.Waiting, s.InFlight)
		}
	})
}

// TestLineOfTickets: a ticket's place is listed with its remark and not with its
// secret, and who cancels the place ends the ticket.
func TestLineOfTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, time.Millisecond, PoolConfig{})
		at := f.all()[0]
		var tickets []admission.Ticket
		for i := range 2 {
			got, err := at.RequestTicket(t.Context(), admission.Request{Pool: testPool}, time.Minute, fmt.Sprintf("job %d", i))
			if err != nil {
				t.Fatal(err)
			}
			tickets = append(tickets, got)
			time.Sleep(time.Second)
		}
		line := at.Line(testPool, 10)
		if len(line.Holding) != 1 || len(line.Waiting) != 1 {
			t.Fatalf("%+v", line)
		}
		e := line.Waiting[0]
		if !e.Ticket || e.Remark != "job 1" || e.ID != tickets[1].Place || e.ID == tickets[1].ID {
			t.Errorf("%+v, want the place of %+v", e, tickets[1])
		}
		if err := at.Cancel(e.ID); err != nil {
			t.Fatal(err)
		}
		var ended *admission.EndedError
		if _, err := at.TestTicket(t.Context(), tickets[1].ID, false, 0); !errors.As(err, &ended) || ended.How != admission.EndCancelled {
			t.Errorf("the ticket after it: %v", err)
		}
		if err := at.EndTicket(t.Context(), tickets[0].ID); err != nil {
			t.Error(err)
		}
	})
}

// TestLineInTurns: where clients are served in turn, those who have no place in line
// yet are listed behind all who have one, and can be sent away as well.
func TestLineInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, 1, admission.BindingLate, time.Millisecond, PoolConfig{Fair: true})
		at := f.all()[0]
		ended := make(map[string]chan error)
		for _, who := range []string{"a1", "a2", "a3", "b1"} {
			done := make(chan error, 1)
			ended[who] = done
			go func() {
				s, err := at.Acquire(t.Context(), admission.Request{Pool: testPool, Wait: -1, Client: who[:1], Info: &admission.RequestInfo{Path: who}})
				done <- err
				if err == nil {
					<-t.Context().Done()
					s.Release()
				}
			}()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		// a1 is in, a2 has its client's place, b1 its own, a3 comes after a2.
		var got []string
		line := at.Line(testPool, 10).Waiting
		for _, e := range line {
			got = append(got, e.Info.Path)
		}
		if want := []string{"a2", "b1", "a3"}; !slices.Equal(got, want) {
			t.Fatalf("the line is %v, want %v", got, want)
		}
		if line[0].InLine != 3*time.Second || line[2].InLine != 0 || line[2].For != 2*time.Second {
			t.Errorf("%+v", line)
		}
		if err := at.Cancel(line[2].ID); err != nil {
			t.Fatal(err)
		}
		if err := <-ended["a3"]; !errors.Is(err, admission.Cancelled) {
			t.Errorf("who was sent away gets: %v", err)
		}
	})
}
