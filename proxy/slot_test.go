package proxy

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/kgate/kgate/internal/admission"
)

// TestSlotHeldUntilLastByte: the slot outlives the header and every byte of the
// body but the last.
func TestSlotHeldUntilLastByte(t *testing.T) {
	for _, length := range []string{"4", ""} { // announced, chunked
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			for range 4 {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				up.pass(r)
			}
		}))
		res := g.do(g.request("GET", "/"))
		one := make([]byte, 1)
		for range 3 {
			// Each byte arrives while the upstream holds back the next one.
			if _, err := io.ReadFull(res.Body, one); err != nil {
				t.Fatal(err)
			}
			if g.sem.now() != 1 {
				t.Fatal("the slot was released before the last byte")
			}
			up.proceed <- struct{}{}
		}
		if _, err := io.ReadFull(res.Body, one); err != nil {
			t.Fatal(err)
		}
		up.proceed <- struct{}{}
		if _, err := res.Body.Read(one); err != io.EOF {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		g.sem.await(0, 0)
		rec := g.records.next(t)
		if rec.Outcome != admission.OutcomeAdmitted || rec.Status != 200 || rec.UpstreamStatus != 200 || rec.Bytes != 4 || rec.Aborted || rec.Pool != "p" {
			t.Errorf("record %+v", rec)
		}
		if rec.Hold <= 0 || rec.FirstByte <= 0 || rec.FirstByte > rec.Hold || rec.Upstream != mustURL(t, g.upstream.URL).Host {
			t.Errorf("record %+v", rec)
		}
	}
}

// TestClientAbortsDownload: a client that leaves in mid-body frees its slot,
// and the upstream is told.
func TestClientAbortsDownload(t *testing.T) {
	up := newGate()
	gone := make(chan struct{})
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		up.pass(r)
		close(gone)
	}))
	c := g.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	c.response()
	up.awaitEntered(t)
	g.sem.await(1, 0)
	_ = c.Close()
	g.sem.await(0, 0)
	<-gone
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted || !rec.Aborted || rec.Status != 200 {
		t.Errorf("record %+v", rec)
	}
}

// orderAdmitter checks at each release that no connection to the upstream is open.
type orderAdmitter struct {
	t        *testing.T
	handler  func() *Handler
	released chan struct{}
}

func (a orderAdmitter) Acquire(context.Context, admission.Request) (Slot, error) {
	return orderSlot{admitter: a}, nil
}

type orderSlot struct {
	openSlot
	admitter orderAdmitter
}

func (s orderSlot) Release() {
	if n := s.admitter.handler().current.Load().balancers["p"].backends[0].client.Open(); n != 0 {
		s.admitter.t.Errorf("released while %d connections to the upstream are open", n)
	}
	s.admitter.released <- struct{}{}
}

// TestClosedBeforeRelease: when an upgraded connection ends, the upstream's side
// is closed before the slot is free.
func TestClosedBeforeRelease(t *testing.T) {
	var g *gateway
	admitter := orderAdmitter{t: t, handler: func() *Handler { return g.handler }, released: make(chan struct{})}
	g = newGateway(t, 1, echoUpgrade(t), func(c *Config) { c.Admitter = admitter })
	for range 50 {
		c := g.dial()
		c.send(upgradeRequest)
		c.response()
		_ = c.Close()
		<-admitter.released
	}
}

func (panicTransport) RoundTrip(*http.Request) (*http.Response, error) { panic("planted") }

func (panicBodyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: &panicBody{}, Request: req}, nil
}

// TestClientLeavesQueue: a client that leaves while it waits leaves the line.
func TestClientLeavesQueue(t *testing.T) {
	up := newGate()
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }))
	first := g.dial()
	first.send("GET /first HTTP/1.1\r\nHost: h\r\n\r\n")
	up.awaitEntered(t)

	second := g.dial()
	second.send("GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
	g.sem.await(1, 1)
	_ = second.Close()
	g.sem.await(1, 0)
	rec := g.records.next(t)
	if rec.Outcome != admission.OutcomeClientGone || rec.Status != 499 || rec.Upstream != "" || rec.Wait <= 0 || rec.Hold != 0 {
		t.Errorf("record %+v", rec)
	}
	close(up.proceed)
	if res := first.response(); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
}
