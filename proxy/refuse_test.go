package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
)

// TestRefusals: every refusal carries its headers and the body the client wants.
func TestRefusals(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler())
	for _, tt := range []struct {
		refusal    admission.Refusal
		outcome    admission.Outcome
		retryAfter string
		status     int
	}{
		{admission.Refusal{Reason: admission.QueueFull}, admission.QueueFull.Outcome(), "1", 503},
		{admission.Refusal{Reason: admission.Timeout, RetryAfter: time.Millisecond, Position: 7}, admission.Timeout.Outcome(), "1", 503},
		{admission.Refusal{Reason: admission.Draining, RetryAfter: 1001 * time.Millisecond, Limit: 8}, admission.Draining.Outcome(), "2", 503},
		{admission.Refusal{Reason: admission.Isolated, RetryAfter: -time.Second}, admission.Isolated.Outcome(), "1", 503},
		{admission.Refusal{Reason: admission.ClientLimit, Limit: 5}, admission.ClientLimit.Outcome(), "1", 429},
		{admission.Refusal{Reason: admission.Cancelled}, admission.Cancelled.Outcome(), "1", 503},
	} {
		g.sem.refusal = &tt.refusal
		for _, accept := range []string{"*/*", "text/plain"} {
			res := g.do(g.request("GET", "/", "Accept", accept))
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			h := res.Header
			if res.StatusCode != tt.status || h.Get("Kgate-Refusal") != string(tt.refusal.Reason) || h.Get("Retry-After") != tt.retryAfter {
				t.Errorf("%v: got %v %v", tt.refusal, res.Status, h)
			}
			if h.Get("Server-Timing") != "" {
				t.Error("Server-Timing on a refusal")
			}
			if accept == "text/plain" {
				if h.Get("Content-Type") != "text/plain; charset=utf-8" || strings.Count(string(body), "\n") != 1 {
					t.Errorf("%v: body %q", tt.refusal, body)
				}
			} else {
				var p problem
				if err := json.Unmarshal(body, &p); err != nil || p.Status != tt.status || p.Reason != string(tt.refusal.Reason) || p.Position != tt.refusal.Position || p.Type != problems.TypeBase+p.Reason || p.Pool != "p" || p.Detail == "" {
					t.Errorf("%v: body %s, %v", tt.refusal, body, err)
				}
			}
			policy, limit := h.Get("RateLimit-Policy"), h.Get("RateLimit")
			want := map[int]string{8: `"p";q=8;qu="concurrent-requests" "p";r=0;t=2`, 5: `"p/client";q=5;qu="concurrent-requests" "p/client";r=0;t=1`, 0: " "}
			if policy+" "+limit != want[tt.refusal.Limit] {
				t.Errorf("%v: RateLimit-Policy %q, RateLimit %q", tt.refusal, policy, limit)
			}
			if res.Close != (tt.refusal.Reason == admission.Draining) {
				t.Errorf("%v: close %v", tt.refusal, res.Close)
			}
			if rec := g.records.next(t); rec.Outcome != tt.outcome || rec.Status != tt.status || rec.Grant.Position != tt.refusal.Position {
				t.Errorf("%v: record %+v", tt.refusal, rec)
			}
		}
	}
}

// TestQueueTimeoutRefuses: the pool's timeout and the client's preference end
// the wait; the place in line is given up.
func TestQueueTimeoutRefuses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		up := newGate()
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up.pass(r) }),
			func(c *Config) { c.Pools[0].QueueTimeout = 10 * time.Second })
		first := g.dial()
		first.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		up.awaitEntered(t)
		for prefer, applied := range map[string]string{"": "", "wait=0": "wait=0", "wait=3600": ""} {
			wait := 10 * time.Second
			if applied != "" {
				wait = minWait
			}
			res := g.do(g.request("GET", "/", "Prefer", prefer))
			_ = res.Body.Close()
			if res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "timeout" || res.Header.Get("Preference-Applied") != applied {
				t.Errorf("Prefer %q: got %v %v", prefer, res.Status, res.Header)
			}
			rec := g.records.next(t)
			if rec.Outcome != admission.Timeout.Outcome() || rec.Wait != wait {
				t.Errorf("Prefer %q: record %+v", prefer, rec)
			}
			g.sem.await(1, 0)
		}
		close(up.proceed)
		first.response()
		res := g.do(g.request("GET", "/", "Prefer", "wait=0"))
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("Preference-Applied") != "wait=0" {
			t.Errorf("a free slot with wait=0: got %v %v", res.Status, res.Header)
		}
	})
}
