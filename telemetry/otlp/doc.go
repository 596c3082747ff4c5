// Package otlp sends spans to an OpenTelemetry collector, as OTLP over HTTP. It is
// apart from package telemetry because the exporter imports gRPC, which no program
// that embeds a gateway should have to carry.
//
// Package proxy decides which requests get spans, and what is in them. The queue of
// spans is bounded and no request waits for the collector.
package otlp
