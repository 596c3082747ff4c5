package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/tcpstate"
)

// TestUpstreamAborts: the client sees a broken answer, not a short one.
func TestUpstreamAborts(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	res := g.do(g.request("GET", "/"))
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the answer looks whole")
	}
	_ = res.Body.Close()
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError || !rec.Aborted {
		t.Errorf("record %+v", rec)
	}
}

// TestUpstreamUnreachable: 502, and the slot is free.
func TestUpstreamUnreachable(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.upstream.Close()
	res := g.do(g.request("GET", "/"))
	b, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 502 || res.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(b), `"status":502`) {
		t.Errorf("got %v %v %s", res.Status, res.Header, b)
	}
	if res.Header.Get("Server-Timing") == "" {
		t.Error("it was admitted, but Server-Timing is missing")
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError || rec.UpstreamStatus != 0 || rec.Status != 502 {
		t.Errorf("record %+v", rec)
	}
}

// TestUpstreamSilent: 504 after the time for the header, and the upstream's
// connection is closed.
func TestUpstreamSilent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		gone := make(chan struct{})
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(gone)
		}))
		began := time.Now()
		res := g.do(g.request("GET", "/"))
		_ = res.Body.Close()
		if took := time.Since(began); res.StatusCode != 504 || took != admission.DefaultResponseHeaderTimeout {
			t.Errorf("got %v after %v", res.Status, took)
		}
		<-gone
		g.sem.await(0, 0)
		if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError {
			t.Errorf("record %+v", rec)
		}
	})
}

// TestAdmissionFails: an error that the Admitter should not return is a 500,
// and is not shown to the client.
func TestAdmissionFails(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.sem.err = errors.New("secret")
	res := g.do(g.request("GET", "/"))
	b, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 500 || strings.Contains(string(b), "secret") {
		t.Errorf("got %v %s", res.Status, b)
	}
}

// TestUpstreamBreaksUploadOff: a client hears of an upstream that closes the connection while the
// request's body still comes.
func TestUpstreamBreaksUploadOff(t *testing.T) {
	for _, resets := range []bool{false, true} {
		up := newTCPUpstream(t, func(c socket) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			tcpstate.ResetOnClose(c, resets)
		})
		up.url.Scheme = "http"
		g := newGateway(t, 1, nil, func(c *Config) { c.Pools[0].Upstreams = []*url.URL{up.url} })
		c := g.dial()
		c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
		if res := c.response(); res.StatusCode != http.StatusBadGateway {
			t.Errorf("resets %v: got %s", resets, res.Status)
		}
		if rec := g.records.next(t); rec.Outcome != admission.OutcomeUpstreamError || rec.Status != http.StatusBadGateway {
			t.Errorf("resets %v: record %+v", resets, rec)
		}
	}
}
