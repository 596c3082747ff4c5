package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/kgate/kgate/telemetry"
	"github.com/kgate/kgate/telemetry/prom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startCollector takes OTLP over HTTP, and answers with status.
func startCollector(t *testing.T, status int) (url string, requests chan *collector.ExportTraceServiceRequest) {
	t.Helper()
	requests = make(chan *collector.ExportTraceServiceRequest, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		data, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
			return
		}
		req := new(collector.ExportTraceServiceRequest)
		if err := proto.Unmarshal(data, req); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		requests <- req
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func newTracing(t *testing.T, endpoint string, m *telemetry.Metrics, log io.Writer) *Tracing {
	t.Helper()
	tracing, err := New(Config{
		Endpoint: endpoint, Gateway: "gw-1", Version: "1.2.3", Metrics: m, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracing
}

func newMetrics(t *testing.T) (*telemetry.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := prom.New(reg, prom.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// spans returns how many spans had a result.
func spans(t *testing.T, reg *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kgate_trace_spans_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatal("no such metric")
	return 0
}

// TestSpansReachTheCollector: spans have the gateway's name, and values from a client are cut to
// size. Close sends the remaining spans.
func TestSpansReachTheCollector(t *testing.T) {
	url, requests := startCollector(t, http.StatusOK)
	m, reg := newMetrics(t)
	tracing := newTracing(t, url, m, io.Discard)
	_, span := tracing.Provider().Tracer("test").Start(context.Background(), "GET /", trace.WithAttributes(attribute.String("url.path", strings.Repeat("x", 100_000))))
	span.End()
	if err := tracing.Close(); err != nil {
		t.Fatal(err)
	}
	var req *collector.ExportTraceServiceRequest
	select {
	case req = <-requests:
	default:
		t.Fatal("no span has come")
	}
	text := fmt.Sprint(req.GetResourceSpans()[0].GetResource())
	for _, want := range []string{"kgate", "gw-1", "1.2.3"} {
		if !strings.Contains(text, want) {
			t.Errorf("the resource lacks %s: %s", want, text)
		}
	}
	got := req.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
	if got.GetName() != "GET /" || len(got.GetAttributes()[0].GetValue().GetStringValue()) != maxAttribute {
		t.Errorf("span %.300v", got)
	}
	if taken := spans(t, reg, "taken"); taken != 1 {
		t.Errorf("%v spans taken", taken)
	}
}

// TestCollectorAway: spans are lost and counted, one line tells so, and no request waits.
func TestCollectorAway(t *testing.T) {
	away := httptest.NewServer(nil)
	away.Close()
	refuses, _ := startCollector(t, http.StatusServiceUnavailable)
	for _, url := range []string{away.URL, refuses} {
		m, reg := newMetrics(t)
		var log bytes.Buffer
		tracing := newTracing(t, url, m, &log)
		const count = 3 * spanQueue
		began := time.Now()
		for range count {
			_, span := tracing.Provider().Tracer("test").Start(context.Background(), "GET /")
			span.End()
		}
		took := time.Since(began)
		if err := tracing.Close(); err != nil {
			t.Fatal(err)
		}
		if took > time.Second*5 {
			t.Errorf("%d spans took %v", count, took)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "they are dropped") {
			t.Errorf("%d lines:\n%.2000s", n, log.String())
		}
		if lost := spans(t, reg, "lost"); lost == 0 || lost > count {
			t.Errorf("%v spans lost", lost)
		}
	}
}

// TestCollectorHangs: Close does not wait for it.
func TestCollectorHangs(t *testing.T) {
	hangs := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	defer s.Close()
	defer close(hangs)
	tracing := newTracing(t, s.URL, nil, io.Discard)
	_, span := tracing.Provider().Tracer("test").Start(context.Background(), "GET /")
	span.End()
	began := time.Now()
	if err := tracing.Close(); err != nil || time.Since(began) > 10*exportTimeout {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
}

func TestTracingRefuses(t *testing.T) {
	for _, endpoint := range []string{"", "collector:4318", "grpc://collector:4317", "http://", "http://a b"} {
		if _, err := New(Config{Endpoint: endpoint}); !errors.Is(err, errConfig) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}
