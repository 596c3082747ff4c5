package proxy

import (
	"io"
	"net/http"
	"testing"
)

// panicTransport panics in place of an answer.
type panicTransport struct{}

// panicBody panics in the middle of an answer.
type panicBody struct{ n int }

func (b *panicBody) Read(p []byte) (int, error) {
	if b.n++; b.n > 1 {
		panic("planted")
	}
	return copy(p, "x"), nil
}
func (*panicBody) Close() error { return nil }

type panicBodyTransport struct{}

// TestPanic: a panic anywhere releases the slot, and the next request is served.
func TestPanic(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	u := g.handler.current.Load().balancers["p"].backends[0]
	healthy := u.requests

	u.requests = without{panicTransport{}}
	res := g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	if res.StatusCode != 500 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Status != 500 || rec.Aborted {
		t.Errorf("record %+v", rec)
	}

	u.requests = without{panicBodyTransport{}}
	res = g.do(g.request("GET", "/"))
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the answer looks whole")
	}
	_ = res.Body.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); !rec.Aborted {
		t.Errorf("record %+v", rec)
	}

	u.requests = healthy
	res = g.do(g.request("GET", "/"))
	_ = res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("status %d after the panics", res.StatusCode)
	}
	if n := u.inFlight; n != 0 {
		t.Errorf("%d counted in flight at the upstream", n)
	}
}
