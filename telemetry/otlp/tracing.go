package otlp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/telemetry"
)

// errConfig is wrapped by the errors of Config.Validate and New.
var errConfig = errors.New("otlp: invalid configuration")

const (
	// exportTimeout bounds one attempt to send spans, and how long Close waits.
	exportTimeout = 2 * time.Second
	// spanQueue bounds the spans that wait for the collector, about 4 MB; more
	// are dropped.
	spanQueue = 4096
	// maxAttribute bounds what a client can put into a span.
	maxAttribute = 1024
)

// Config of a Tracing.
type Config struct {
	// Endpoint is the URL of an OpenTelemetry collector that takes OTLP over
	// HTTP, such as http://127.0.0.1:4318. Without a path, /v1/traces is meant.
	// Required.
	Endpoint string
	// TLS of an https endpoint; nil: the system's roots.
	TLS *tls.Config
	// Gateway is this gateway's name, Version the program's version.
	Gateway, Version string
	// Metrics count the spans; nil: they are not counted.
	Metrics *telemetry.Metrics
	// Logger; nil: silent.
	Logger *slog.Logger
}

// Validate returns what is wrong with c.
func (c Config) Validate() error {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return fmt.Errorf("%w: endpoint: %w", errConfig, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%w: endpoint %q is not a URL such as http://127.0.0.1:4318", errConfig, u.Redacted())
	}
	return nil
}

// Tracing sends spans to a collector, in the background. A collector that does not
// answer costs spans and one log line a minute, never a request's time.
type Tracing struct {
	provider *sdktrace.TracerProvider
}

// New returns a Tracing that runs until Close. It does not wait for the
// collector.
func New(cfg Config) (*Tracing, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	u, _ := url.Parse(cfg.Endpoint) // has been checked
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	options := []otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(u.String()),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithTimeout(exportTimeout),
		// Spans that cannot be delivered now make room for newer ones.
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}),
	}
	if cfg.TLS != nil {
		options = append(options, otlptracehttp.WithTLSClientConfig(cfg.TLS))
	}
	exporter, err := otlptracehttp.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	return &Tracing{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&export{SpanExporter: exporter, cfg: cfg, endpoint: u.Redacted()},
			sdktrace.WithMaxQueueSize(spanQueue), sdktrace.WithExportTimeout(exportTimeout)),
		// The caller has sampled already.
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewWithAttributes(telemetry.TraceSchema,
			attribute.String("service.name", "kgate"),
			attribute.String("service.instance.id", cfg.Gateway),
			attribute.String("service.version", cfg.Version),
		)),
	)}, nil
}

// Provider returns the maker of the spans, which records all of them.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Close sends the remaining spans, if the collector answers soon, and ends the goroutines in the
// background.
func (t *Tracing) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	// Spans that are lost now have been logged like all others.
	_ = t.provider.Shutdown(ctx)
	return nil
}

// export is the collector as the batches see it: its failures end here.
type export struct {
	sdktrace.SpanExporter
	cfg      Config
	endpoint string
	failures oncelog.Limit
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *export) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.cfg.Metrics.SpansSent(len(spans), err == nil)
	if err == nil {
		return nil
	}
	if left, ok := e.failures.Allow(""); ok {
		e.cfg.Logger.Warn("the collector refused traces: they are dropped",
			slog.String("telemetry_otlp_endpoint", e.endpoint), slog.Int("spans", len(spans)),
			slog.Int("lines_left_out", left), slog.Any("error", err))
	}
	return nil
}
