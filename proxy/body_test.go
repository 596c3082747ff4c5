package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// TestContinueAfterAdmission: a client that waits for 100 Continue gets it only
// once it is admitted, and its body goes through.
func TestContinueAfterAdmission(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				up.pass(r)
				return
			}
			_, _ = io.Copy(w, r.Body)
		}))
		first := g.dial()
		first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t)

		second := g.dial()
		second.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		g.sem.await(1, 1)
		if err := second.SetReadDeadline(time.Now().Add(patience / 2)); err != nil {
			t.Fatal(err)
		}
		// Nothing may come before its turn.
		var netErr net.Error
		if b, err := second.br.Peek(1); !errors.As(err, &netErr) || !netErr.Timeout() {
			t.Fatalf("%q, %v before admission", b, err)
		}
		_ = second.SetReadDeadline(time.Now().Add(patience))
		close(up.proceed)
		if res := second.response(); res.StatusCode != 100 {
			t.Fatalf("status %d, want 100", res.StatusCode)
		}
		second.send("hello")
		res := second.response()
		if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(b) != "hello" {
			t.Errorf("status %d, body %q", res.StatusCode, b)
		}
	})
}

// TestContinueRefused: a refused client is never told to send its body.
func TestContinueRefused(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	g.sem.refusal = &admission.Refusal{Reason: admission.QueueFull}
	c := g.dial()
	c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if res := c.response(); res.StatusCode != 503 || !res.Close {
		t.Errorf("got %v, close %v", res.Status, res.Close)
	}
}

// TestMalformed: what net/http refuses costs no slot and reaches no upstream.
func TestMalformed(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached the upstream") }))
	for _, raw := range []string{
		"GARBAGE GARBAGE\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", // no Host
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nBad Name: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"GET / HTTP/9.9\r\nHost: h\r\n\r\n",
		"GET /../x HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /x%2f..%2Fy HTTP/1.1\r\nHost: h\r\n\r\n",
		"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
	} {
		c := g.dial()
		// The server may answer and close before it has read everything.
		_, _ = io.WriteString(c, raw)
		res, err := http.ReadResponse(c.br, nil)
		if err == nil && (res.StatusCode < 400 || res.StatusCode > 505) {
			t.Errorf("%.40q: status %d", raw, res.StatusCode)
		}
		_ = c.Close()
	}
	g.sem.mu.Lock()
	defer g.sem.mu.Unlock()
	if g.sem.maxHeld != 0 {
		t.Error("a slot was taken")
	}
}

// TestSmuggling: a chunked body with a Content-Length beside it is one request
// to the upstream, whatever the length says.
func TestSmuggling(t *testing.T) {
	requests := make(chan string, 10)
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests <- r.URL.Path + " " + string(b)
	}))
	c := g.dial()
	c.send("POST /one HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /two HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	_, _ = io.Copy(io.Discard, c.br)
	close(requests)
	for got := range requests {
		if got != "/one hello" && got != "/two " {
			t.Errorf("the upstream got %q", got)
		}
	}
}

// TestNoRequestAfterBrokenBody: what follows a body that is broken, or that the
// upstream did not wait for, is never taken for a request.
func TestNoRequestAfterBrokenBody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/smuggled":
				t.Error("the rest of a body reached the upstream as a request")
			case "/early":
				// Else this upstream itself would wait for the body first.
				if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
					t.Error(err)
				}
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			default:
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}))
		const hidden = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
		for _, raw := range []string{
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + hidden,
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX" + hidden,
			"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + hidden,
			"POST /early HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + hidden,
		} {
			c := g.dial()
			c.send(raw)
			for kept := true; kept; {
				res, err := http.ReadResponse(c.br, nil)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, res.Body)
				if kept = !res.Close; kept {
					t.Errorf("%.60q...: the connection is kept after %s", raw, res.Status)
				}
			}
			_ = c.Close()
		}
		g.sem.await(0, 0)
	})
}

// TestClientBodyBreaks: a body that cannot be read is the client's fault.
func TestClientBodyBreaks(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	c := g.dial()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n")
	if res := c.response(); res.StatusCode != 400 {
		t.Errorf("status %d", res.StatusCode)
	}
	g.sem.await(0, 0)
	if rec := g.records.next(t); rec.Outcome != admission.OutcomeAdmitted {
		t.Errorf("record %+v", rec)
	}
}
