package proxy

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/upstream"
)

// A sampled request has three spans: its own, kgate.queue for the wait in the
// line, and the client's span of the exchange with the upstream, which is the parent
// of what the upstream does. The wait links to the request, at whatever gateway, that
// had the slot before. Names of spans and attributes are those of OpenTelemetry's
// semantic conventions for HTTP, and kgate.* for what only a line has.
//
// Whether a request is sampled is decided before anything is done for it: by
// the service that began its trace, else at random. So one that is not costs the
// reading of one header, which passes unchanged.

// The headers of W3C Trace Context, in canonical form. Baggage goes on as it
// came.
const (
	traceParentHeader = "Traceparent"
	traceStateHeader  = "Tracestate"
)

// spans of a sampled request.
type spans struct {
	server   trace.Span
	upstream trace.Span      // nil: it has none yet
	ctx      context.Context // of server
}

// traceParent is the trace context that a request brings. IDs are the header's
// hexadecimal digits.
type traceParent struct {
	trace, span string
	flags       trace.TraceFlags
}

// parseTraceParent reads the header traceparent; ok is false if there is no valid
// one. It allocates nothing.
func parseTraceParent(fields http1.Fields) (p traceParent, ok bool) {
	s, ok := fields.Only(http1.Traceparent)
	if !ok {
		return p, false
	}
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return p, false
	}
	// Later versions may append fields and use more flags; they keep the rest.
	version, flags := s[:2], s[53:length]
	switch {
	case version == "ff", len(s) > length && s[length] != '-':
		return p, false
	case version == "00" && (len(s) > length || flags > "03"):
		return p, false
	}
	p.trace, p.span = s[3:35], s[36:52]
	for _, digits := range []string{version, p.trace, p.span, flags} {
		if !isLowerHex(digits) {
			return traceParent{}, false
		}
	}
	if strings.Trim(p.trace, "0") == "" || strings.Trim(p.span, "0") == "" {
		return traceParent{}, false
	}
	bits, _ := strconv.ParseUint(flags, 16, 8) // has been checked
	p.flags = trace.TraceFlags(bits) & (trace.FlagsSampled | trace.FlagsRandom)
	return p, true
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// context is the parent as OpenTelemetry knows it.
func (p traceParent) context(fields http1.Fields) trace.SpanContext {
	id, _ := trace.TraceIDFromHex(p.trace) // has been checked
	span, _ := trace.SpanIDFromHex(p.span)
	// If the state is invalid it is dropped; the trace is kept.
	state, _ := trace.ParseTraceState(strings.Join(fields.Values(traceStateHeader), ","))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: p.flags, TraceState: state, Remote: true,
	})
}

// startTrace notes which trace the request belongs to, and begins its span if it
// is sampled.
func (ex *exchange) startTrace(r *http1.Request) {
	parent, known := parseTraceParent(r.Fields)
	ex.rec.TraceID = parent.trace
	cfg := &ex.snapshot.cfg
	if cfg.Tracer == nil || known && !parent.flags.IsSampled() || !known && !byLot(cfg.SampleRatio) {
		return
	}
	ctx := context.Background() // spans outlive the request's context
	if known {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.context(r.Fields))
	}
	route := cmp.Or(ex.route.pathPrefix, "/")
	ex.beginTrace(ctx, spanMethod(r.Method)+" "+route,
		append(serverAttributes(printable(r.Host)),
			attribute.String("http.request.method", knownMethod(r.Method)),
			attribute.String("http.route", route),
			attribute.String("url.path", r.URL.EscapedPath()),
			attribute.String("url.scheme", scheme(r)),
			attribute.String("client.address", ex.info.Remote.String()),
			attribute.String("network.protocol.version", strings.TrimPrefix(r.Proto, "HTTP/")),
			attribute.String("user_agent.original", printable(r.Fields.Get("User-Agent"))),
		))
	if ex.requestID != "" {
		name := "http.request.header." + strings.ToLower(ex.snapshot.requestID)
		ex.spans.server.SetAttributes(attribute.StringSlice(name, []string{ex.requestID}))
	}
}

func (v *visit) beginTrace(ctx context.Context, name string, attrs []attribute.KeyValue) {
	v.spans = new(spans)
	v.spans.ctx, v.spans.server = v.snapshot.cfg.Tracer.Start(ctx, name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(v.arrived), trace.WithAttributes(attrs...))
	sc := v.spans.server.SpanContext()
	v.rec.TraceID, v.rec.Sampled = sc.TraceID().String(), sc.IsSampled()
}

// serverAttributes name a server by the address that it was asked at: host, or host:port.
func serverAttributes(address string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return []attribute.KeyValue{attribute.String("server.address", strings.Trim(address, "[]"))}
	}
	attrs := []attribute.KeyValue{attribute.String("server.address", host)}
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, attribute.Int("server.port", n))
	}
	return attrs
}

func scheme(r *http1.Request) string {
	if r.Secure {
		return "https"
	}
	return "http"
}

// printable makes s what OTLP can carry: it refuses a batch for one bad byte.
func printable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func byLot(ratio float64) bool { return ratio > 0 && rand.Float64() < ratio }

// otherMethod stands for all methods that the conventions do not know.
const otherMethod = "_OTHER"

// knownMethod keeps the values of an attribute to a short list.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace:
		return method
	default:
		return otherMethod
	}
}

// spanMethod is knownMethod in the name of a span.
func spanMethod(method string) string {
	if knownMethod(method) == otherMethod {
		return "HTTP"
	}
	return method
}

// traceWait makes the span of a wait that has just ended.
func (v *visit) traceWait() {
	tracer, grant := v.snapshot.cfg.Tracer, &v.rec.Grant
	if tracer == nil || !v.rec.Sampled {
		return
	}
	_, span := tracer.Start(v.spans.ctx, "kgate.queue",
		trace.WithTimestamp(v.arrived), trace.WithAttributes(attribute.String("kgate.pool", v.rec.Pool)))
	if !v.entered {
		span.SetStatus(codes.Error, "not admitted: "+v.rec.Outcome.String())
	} else {
		span.SetAttributes(
			attribute.Int("kgate.position", grant.Position),
			attribute.Int("kgate.token", grant.Token),
			attribute.Int64("kgate.epoch", int64(grant.Epoch)),
			attribute.Int64("kgate.serial", int64(grant.Serial)),
		)
		if before, ok := linked(grant.After); ok {
			span.AddLink(trace.Link{SpanContext: before, Attributes: []attribute.KeyValue{attribute.String("kgate.link", "token")}})
		}
	}
	span.End(trace.WithTimestamp(v.arrived.Add(v.rec.Wait)))
}

// spanBytes names a span, for the request that gets the token next.
func spanBytes(sc trace.SpanContext) string {
	id, span := sc.TraceID(), sc.SpanID()
	return string(id[:]) + string(span[:])
}

// linked is the span that spanBytes has named.
func linked(bytes string) (trace.SpanContext, bool) {
	var cfg trace.SpanContextConfig
	if len(bytes) != len(cfg.TraceID)+len(cfg.SpanID) {
		return trace.SpanContext{}, false
	}
	n := copy(cfg.TraceID[:], bytes)
	copy(cfg.SpanID[:], bytes[n:])
	cfg.TraceFlags, cfg.Remote = trace.FlagsSampled, true
	sc := trace.NewSpanContext(cfg)
	return sc, sc.IsValid()
}

// traceUpstream begins the span of the upstream's part, and makes it the parent
// of what the upstream records. It is called for each upstream that is tried.
func (ex *exchange) traceUpstream(out *upstream.Request, fields *http1.Fields) {
	if ex.spans == nil {
		return
	}
	began := ex.admitted()
	if ex.spans.upstream != nil { // to which no connection could be made
		began = time.Now()
		ex.spans.endUpstream(began, "dial")
	}
	to := out.URL
	attrs := append(serverAttributes(to.Host),
		attribute.String("http.request.method", knownMethod(out.Method)),
		attribute.String("url.scheme", to.Scheme),
		attribute.String("url.full", to.Scheme+"://"+to.Host+to.EscapedPath())) // a query may hold secrets
	_, ex.spans.upstream = ex.snapshot.cfg.Tracer.Start(ex.spans.ctx, spanMethod(out.Method),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began), trace.WithAttributes(attrs...))
	sc := ex.spans.upstream.SpanContext()
	fields.Set(traceParentHeader, "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-"+sc.TraceFlags().String())
	if state := sc.TraceState().String(); state != "" {
		fields.Set(traceStateHeader, state)
	} else {
		fields.Delete(traceStateHeader)
	}
}

// endUpstream ends the upstream's span. failure says what went wrong, in one word or as a
// status code; empty: nothing.
func (s *spans) endUpstream(at time.Time, failure string) {
	fail(s.upstream, failure)
	s.upstream.End(trace.WithTimestamp(at))
}

// endTrace ends the spans with what the visit came to.
func (v *visit) endTrace() {
	if v.spans == nil {
		return
	}
	server, up, rec, now := v.spans.server, v.spans.upstream, &v.rec, time.Now()
	exchanged := server // with the upstream
	if up != nil {
		exchanged = up
	}
	if rec.FirstByte > 0 {
		exchanged.AddEvent("first byte", trace.WithTimestamp(v.admitted().Add(rec.FirstByte)))
	}
	if up != nil {
		if rec.UpstreamStatus != 0 {
			up.SetAttributes(attribute.Int("http.response.status_code", rec.UpstreamStatus))
		}
		v.spans.endUpstream(now, rec.upstreamFailure())
	} else if rec.Upstream != "" { // of a TCP connection
		server.SetAttributes(serverAttributes(rec.Upstream)...)
	}
	if rec.Status != 0 {
		server.SetAttributes(
			attribute.Int("http.response.status_code", rec.Status),
			attribute.Int64("http.response.body.size", rec.Bytes),
		)
	}
	server.SetAttributes(attribute.String("kgate.outcome", rec.Outcome.String()))
	fail(server, rec.failure())
	server.End(trace.WithTimestamp(now))
}

// fail marks a span as failed, if it has.
func fail(span trace.Span, failure string) {
	if failure != "" {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(attribute.String("error.type", failure))
	}
}

// failure says why the request failed, as the attribute error.type; empty: it has not.
func (r *Record) failure() string {
	switch {
	case r.Aborted:
		return "aborted"
	case r.Outcome == admission.OutcomeUpstreamError:
		return r.Outcome.String()
	case r.Status >= http.StatusInternalServerError:
		return strconv.Itoa(r.Status)
	default:
		return ""
	}
}

// upstreamFailure says the same of the upstream's part.
func (r *Record) upstreamFailure() string {
	switch {
	case r.DialFailed:
		return "dial"
	case r.UpstreamStatus >= http.StatusBadRequest:
		return strconv.Itoa(r.UpstreamStatus)
	case r.Aborted:
		return "aborted"
	case r.Outcome == admission.OutcomeUpstreamError:
		return "no_answer"
	default:
		return ""
	}
}

// traceAttr names the request's trace in a log line; nothing if it has none.
func (v *visit) traceAttr() slog.Attr {
	if v.rec.TraceID == "" {
		return slog.Attr{}
	}
	return slog.String("trace_id", v.rec.TraceID)
}
