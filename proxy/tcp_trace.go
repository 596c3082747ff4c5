package proxy

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// A sampled connection has two spans: its own, and that of its wait, which links to
// whoever had the slot before. It brings no trace context, so the lot decides.

// startTrace begins the connection's span, if it is sampled.
func (se *session) startTrace() {
	cfg := &se.snapshot.cfg
	if cfg.Tracer == nil || !byLot(cfg.SampleRatio) {
		return
	}
	// Spans outlive the session's context.
	se.traced, se.span = cfg.Tracer.Start(context.Background(), "TCP "+se.info.Path,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(se.arrived),
		trace.WithAttributes(
			attribute.String("network.transport", "tcp"),
			attribute.String("client.address", se.info.Remote.String()),
			attribute.String("kgate.pool", se.rec.Pool),
		))
	sc := se.span.SpanContext()
	se.rec.TraceID, se.rec.Sampled = sc.TraceID().String(), sc.IsSampled()
	se.info.Trace = se.rec.TraceID
}

// spanBytes names the span for who has the token next.
func (se *session) spanBytes() string {
	if !se.rec.Sampled {
		return ""
	}
	return spanBytes(se.span.SpanContext())
}

// traceWait records the wait that has just ended.
func (se *session) traceWait() {
	if se.span != nil {
		se.rec.traceWait(se.traced, se.snapshot.cfg.Tracer, se.arrived, !se.admitted.IsZero())
	}
}

// endTrace ends the connection's span with what it came to.
func (se *session) endTrace() {
	if se.span == nil {
		return
	}
	rec := &se.rec
	if rec.Upstream != "" {
		se.span.SetAttributes(serverAttributes(rec.Upstream)...)
	}
	if rec.FirstByte > 0 {
		se.span.AddEvent("first byte", trace.WithTimestamp(se.admitted.Add(rec.FirstByte)))
	}
	se.span.SetAttributes(attribute.String("kgate.outcome", rec.Outcome.String()))
	fail(se.span, rec.failure())
	se.span.End(trace.WithTimestamp(time.Now()))
}
