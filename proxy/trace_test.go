package proxy

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// exampleParent is a sampled request's trace context.
const exampleParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traced has a gateway record spans.
func traced(ratio float64) (*tracetest.SpanRecorder, func(*Config)) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return recorder, func(c *Config) { c.Tracer, c.SampleRatio = provider.Tracer("test"), ratio }
}

func byName(t *testing.T, spans []sdktrace.ReadOnlySpan) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	named := make(map[string]sdktrace.ReadOnlySpan)
	for _, s := range spans {
		if named[s.Name()] != nil {
			t.Errorf("two spans %s", s.Name())
		}
		named[s.Name()] = s
	}
	return named
}

func attributeOf(s sdktrace.ReadOnlySpan, key string) attribute.Value {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

// TestTraceGoesThrough: the client's trace has the request's spans, and goes on
// at the upstream below the client span.
func TestTraceGoesThrough(t *testing.T) {
	recorder, change := traced(0)
	seen := make(chan http.Header, 1)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.WriteHeader(http.StatusTeapot)
	}), change)
	res := g.do(g.request("GET", "/x?token=secret", "Traceparent", exampleParent, "Tracestate", "a=1", "Tracestate", "b=2", "Baggage", "k=v", "User-Agent", "a\xffb"))
	_ = res.Body.Close()
	rec := g.records.next(t)
	if rec.TraceID != exampleParent[3:35] || !rec.Sampled {
		t.Errorf("trace %q, sampled %t", rec.TraceID, rec.Sampled)
	}
	spans := byName(t, awaitSpans(t, recorder, 3))
	server, queue, up := spans["GET /"], spans["kgate.queue"], spans["GET"]
	if server == nil || queue == nil || up == nil {
		t.Fatalf("spans %v", spans)
	}
	if server.Parent().SpanID().String() != exampleParent[36:52] || !server.Parent().IsRemote() {
		t.Errorf("the server's span is below %v", server.Parent())
	}
	for _, child := range []sdktrace.ReadOnlySpan{queue, up} {
		if child.Parent().SpanID() != server.SpanContext().SpanID() || child.StartTime().Before(server.StartTime()) || child.EndTime().After(server.EndTime()) {
			t.Errorf("%s is not within the server's span", child.Name())
		}
	}
	if up.StartTime().Before(queue.EndTime()) {
		t.Error("the upstream's part begins before the wait is over")
	}
	h := <-seen
	want := "00-" + exampleParent[3:35] + "-" + up.SpanContext().SpanID().String() + "-01"
	if h.Get("Traceparent") != want || h.Get("Tracestate") != "a=1,b=2" || h.Get("Baggage") != "k=v" {
		t.Errorf("the upstream got %v, want traceparent %s", h, want)
	}
	if v := attributeOf(queue, "kgate.serial"); v.AsInt64() != 1 {
		t.Errorf("the wait's span: %v", queue.Attributes())
	}
	// One byte that is not UTF-8 would lose a whole batch.
	if agent := attributeOf(server, "user_agent.original").AsString(); agent != "a\uFFFDb" {
		t.Errorf("user agent %q", agent)
	}
	target, err := url.Parse(g.upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.ParseInt(target.Port(), 10, 64)
	for key, want := range map[string]attribute.Value{
		"http.request.method": attribute.StringValue("GET"), "url.scheme": attribute.StringValue("http"),
		"server.address": attribute.StringValue(target.Hostname()), "server.port": attribute.Int64Value(port),
		"url.full": attribute.StringValue(target.String() + "/x"), "http.response.status_code": attribute.IntValue(http.StatusTeapot),
		"error.type": attribute.StringValue("418"),
	} {
		if got := attributeOf(up, key); got != want {
			t.Errorf("%s of the upstream's span: %v, want %v", key, got.String(), want.String())
		}
	}
	if port := attributeOf(server, "server.port").AsInt64(); strings.Contains(attributeOf(server, "server.address").AsString(), ":") || port == 0 ||
		attributeOf(server, "url.scheme").AsString() != "http" || attributeOf(server, "error.type").AsString() != "" {
		t.Errorf("the server's span: %v", server.Attributes())
	}
	if attributeOf(server, "http.response.status_code").AsInt64() != http.StatusTeapot || attributeOf(server, "url.path").AsString() != "/x" {
		t.Errorf("the server's span: %v", server.Attributes())
	}
}

// awaitSpans waits for n spans to end: the last ones do after the answer.
func awaitSpans(t *testing.T, recorder *tracetest.SpanRecorder, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		spans := recorder.Ended()
		if len(spans) >= n || time.Now().After(deadline) {
			if len(spans) != n {
				t.Fatalf("%d spans, want %d", len(spans), n)
			}
			return spans
		}
		time.Sleep(time.Millisecond) // polls
	}
}

// TestUnsampledPassesUntouched: no spans, and the header as it came; also
// without a tracer, and when the header is no good.
func TestUnsampledPassesUntouched(t *testing.T) {
	recorder, change := traced(0)
	seen := make(chan string, 1)
	for _, change := range []func(*Config){change, func(*Config) {}} {
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen <- r.Header.Get("Traceparent")
		}), change)
		unsampled := exampleParent[:len(exampleParent)-1] + "0"
		for sent, id := range map[string]string{unsampled: unsampled[3:35], "nonsense": "", "": ""} {
			req := g.request("GET", "/")
			if sent != "" {
				req.Header.Set("Traceparent", sent)
			}
			_ = g.do(req).Body.Close()
			if got := <-seen; got != sent {
				t.Errorf("the upstream got %q, want %q", got, sent)
			}
			if rec := g.records.next(t); rec.TraceID != id || rec.Sampled {
				t.Errorf("trace %q, sampled %t", rec.TraceID, rec.Sampled)
			}
		}
	}
	if n := len(recorder.Started()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// TestRatio: requests without a trace are sampled by lot.
func TestRatio(t *testing.T) {
	recorder, change := traced(1)
	g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), change)
	_ = g.do(g.request("GET", "/")).Body.Close()
	rec := g.records.next(t)
	spans := byName(t, awaitSpans(t, recorder, 3))
	if s := spans["GET /"]; s == nil || s.Parent().IsValid() || s.SpanContext().TraceID().String() != rec.TraceID || !rec.Sampled {
		t.Errorf("spans %v, record %+v", spans, rec)
	}
	// The ratio follows a reload.
	cfg := g.handler.current.Load().cfg
	cfg.SampleRatio = 0
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	_ = g.do(g.request("GET", "/")).Body.Close()
	if rec := g.records.next(t); rec.Sampled {
		t.Error("sampled at a ratio of 0")
	}
	const n = 100_000
	hits := 0
	for range n {
		if byLot(.01) {
			hits++
		}
	}
	if hits < n/200 || hits > n/50 {
		t.Errorf("%d of %d at a ratio of 0.01", hits, n)
	}
	if byLot(0) || !byLot(1) {
		t.Error("0 is never, 1 always")
	}
}

// TestRefusalIsTraced: a request that is not admitted has a wait and no upstream.
func TestRefusalIsTraced(t *testing.T) {
	recorder, change := traced(0)
	g := newGateway(t, 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), change)
	g.sem.refusal = &admission.Refusal{Reason: admission.Timeout}
	_ = g.do(g.request("GET", "/", "Traceparent", exampleParent)).Body.Close()
	spans := byName(t, awaitSpans(t, recorder, 2))
	if q := spans["kgate.queue"]; q == nil || q.Status().Description != "not admitted: timeout" {
		t.Errorf("spans %v", spans)
	}
	if s := spans["GET /"]; s == nil || attributeOf(s, "kgate.outcome").AsString() != "timeout" {
		t.Errorf("spans %v", spans)
	}
}

// TestUnsampledCostsNothing: a request that is not sampled allocates not a byte
// more than where no tracer is.
func TestUnsampledCostsNothing(t *testing.T) {
	_, change := traced(0)
	to := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	for _, parent := range []string{"", exampleParent[:len(exampleParent)-1] + "0"} {
		var allocs [2]float64
		for i, change := range []func(*Config){func(*Config) {}, change} {
			h := openHandler(t, to, change)
			h.current.Load().balancers["p"].backends[0].requests = without{cannedTransport{}}
			req := httptest.NewRequest(http.MethodGet, "http://h/x", http.NoBody)
			if parent != "" {
				req.Header.Set("Traceparent", parent)
			}
			w := &blankWriter{h: http.Header{}}
			// The least of many: what is used again may not be there.
			allocs[i] = math.Inf(1)
			for range 200 {
				allocs[i] = min(allocs[i], testing.AllocsPerRun(1, func() {
					clear(w.h)
					h.ServeHTTP(w, req)
				}))
			}
			h.Close()
		}
		if allocs[0] != allocs[1] {
			t.Errorf("traceparent %q: %v allocations without a tracer, %v with one", parent, allocs[0], allocs[1])
		}
	}
	h := cameWith("Traceparent", exampleParent)
	if n := testing.AllocsPerRun(200, func() { _, _ = parseTraceParent(h) }); n != 0 {
		t.Errorf("reading the header allocates %v times", n)
	}
}

// FuzzTraceParent compares with OpenTelemetry's own reading of the header.
func FuzzTraceParent(f *testing.F) {
	for _, s := range []string{
		exampleParent, exampleParent + "-x", exampleParent + "x", "01" + exampleParent[2:], "01" + exampleParent[2:] + "-x",
		"ff" + exampleParent[2:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", exampleParent[:len(exampleParent)-2] + "03", exampleParent[:len(exampleParent)-2] + "04",
		"01" + exampleParent[2:len(exampleParent)-2] + "ff", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.HasPrefix(s, "00-") && strings.HasSuffix(s, "-") {
			t.Skip() // OpenTelemetry does not mind a hyphen at the end
		}
		h := http.Header{"Traceparent": {s}, "Tracestate": {"a=1"}}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h)))
		came := cameWith("Traceparent", s, "Tracestate", "a=1")
		got, ok := parseTraceParent(came)
		if ok != want.IsValid() || ok && !got.context(came).Equal(want) {
			t.Fatalf("%q: %+v, %t; OpenTelemetry reads %+v", s, got, ok, want)
		}
	})
}

// TestMiddlewareInSpan: a request of Middleware is in the span that the program has begun for it.
func TestMiddlewareInSpan(t *testing.T) {
	a := new(asker)
	h, err := New(Config{Admitter: a, Pools: []Pool{{Name: "p"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	r := httptest.NewRequest("GET", "/", http.NoBody)
	h.Middleware("p", http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r.WithContext(trace.ContextWithSpanContext(r.Context(), sc)))
	if want := spanBytes(sc); len(a.spans) != 1 || a.spans[0] != want {
		t.Errorf("spans %q, want %q", a.spans, want)
	}
}
