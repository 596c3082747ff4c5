package proxy

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestUploaderLeaves: a client whose body nobody has read is missed too, in
// the line and at an upstream that answers without reading.
func TestUploaderLeaves(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see departure_other.go")
	}
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		up.pass(r)
	}))
	// More than fits any buffer on the way, and less than announced.
	upload := "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 10_000)
	first := g.dial()
	first.send(upload)
	up.awaitEntered(t)
	second := g.dial()
	second.send(upload)
	g.sem.await(1, 1)

	_ = second.Close()
	g.sem.await(1, 0)
	if rec := g.records.next(t); rec.Outcome != OutcomeClientGone || rec.Status != 499 {
		t.Errorf("record %+v", rec)
	}
	_ = first.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != OutcomeAdmitted || !rec.Aborted {
		t.Errorf("record %+v", rec)
	}
	close(up.proceed)
}

// TestExpectUnanswered: an upstream that answers before it has asked for the
// body and then waits for it all the same, as net/http's server does, hangs. The
// slot is held no longer than the client stays.
func TestExpectUnanswered(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see departure_other.go")
	}
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	c := g.dial()
	c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if res := c.response(); res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	_ = c.Close()
	g.sem.await(0, 0)
}
