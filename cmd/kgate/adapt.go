package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/gateway"
	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/telemetry"
)

// The rooms know nothing of each other; here they are fitted together.

var (
	_ proxy.Admitter     = admitter{}
	_ proxy.Slot         = slot{}
	_ proxy.Observer     = requestObserver{}
	_ gateway.Observer   = poolObservers{}
	_ membership.Links   = (*transport.Transport)(nil)
	_ transport.Observer = linkObserver{}
)

// admitter lets the proxy's requests into the gateway's pools.
type admitter struct{ n *node }

// Acquire implements proxy.Admitter.
func (a admitter) Acquire(ctx context.Context, ask proxy.Ask) (proxy.Slot, error) {
	s, err := a.n.gateway.Acquire(ctx, askOf(ask))
	if err == nil {
		return slot{s}, nil
	}
	return nil, a.refusal(ask.Pool, err)
}

func askOf(ask proxy.Ask) gateway.Ask {
	return gateway.Ask{Pool: ask.Pool, Wait: ask.Wait, Client: ask.Client, Span: ask.Span, HoldMax: ask.HoldMax, Request: (*gateway.Note)(ask.Request)}
}

// slot is a gateway's slot as the proxy knows it.
type slot struct{ *gateway.Slot }

// Entry implements proxy.Slot.
func (s slot) Entry() proxy.Entry { return proxy.Entry(s.Slot.Entry()) }

// refusal says in the proxy's words why a request is not admitted.
func (a admitter) refusal(pool string, err error) error {
	refuse := func(why proxy.Reason) error {
		status := a.n.gateway.Status(pool)
		refusal := &proxy.Refusal{Reason: why, RetryAfter: a.n.gateway.RetryAfter(pool), Limit: status.K}
		if why == proxy.ReasonClientLimit {
			refusal.Limit = cmp.Or(status.ClientLimit, status.ClientTickets)
		}
		if waited := (*gateway.WaitError)(nil); errors.As(err, &waited) {
			refusal.Position = waited.Position
		}
		return refusal
	}
	switch {
	case errors.Is(err, gateway.ErrQueueFull):
		return refuse(proxy.ReasonQueueFull)
	case errors.Is(err, gateway.ErrClientLimit):
		return refuse(proxy.ReasonClientLimit)
	case errors.Is(err, gateway.ErrDraining):
		return refuse(proxy.ReasonDraining)
	case errors.Is(err, gateway.ErrIsolated), errors.Is(err, gateway.ErrUnknownPool):
		// A pool of the configuration is unknown only until it is agreed.
		return refuse(proxy.ReasonIsolated)
	case errors.Is(err, gateway.ErrCancelled):
		return refuse(proxy.ReasonCancelled)
	case errors.Is(err, gateway.ErrTimeout):
		return refuse(proxy.ReasonTimeout)
	default: // the client has left
		return err
	}
}

// requestObserver counts what became of requests.
type requestObserver struct {
	m        *telemetry.Metrics
	refusals *refusalLog
}

// Admitted implements proxy.Observer.
func (o requestObserver) Admitted(r *proxy.Record) {
	traceID := ""
	if r.Sampled {
		traceID = r.TraceID
	}
	o.m.Pool(r.Pool).Wait(telemetry.OutcomeAdmitted, r.Wait, traceID)
}

// Done implements proxy.Observer.
func (o requestObserver) Done(r *proxy.Record) {
	p := o.m.Pool(r.Pool)
	outcome := telemetry.Outcome(r.Outcome.String())
	p.Outcome(outcome)
	p.Answered(r.Status, r.RequestBytes, r.Bytes)
	p.Retried(r.Retries)
	o.refusals.add(r)
	if r.Hold > 0 { // it was admitted
		p.Hold(r.Hold)
	} else {
		p.Wait(outcome, r.Wait, "")
	}
	switch {
	case r.FirstByte > 0:
		p.Upstream(r.FirstByte)
		if r.Outcome == proxy.OutcomeUpstreamError {
			p.UpstreamError(telemetry.UpstreamBroken)
		}
	case r.Outcome != proxy.OutcomeUpstreamError:
	case r.Status == http.StatusGatewayTimeout:
		p.UpstreamError(telemetry.UpstreamTimeout)
	case r.DialFailed:
		p.UpstreamError(telemetry.UpstreamDial)
	default:
		p.UpstreamError(telemetry.UpstreamBroken)
	}
}

// poolObservers counts what the machines do.
type poolObservers struct{ m *telemetry.Metrics }

// Pool implements gateway.Observer.
func (o poolObservers) Pool(name string) gateway.PoolObserver {
	return poolObserver{o.m, o.m.Pool(name)}
}

// LeaseLost implements gateway.Observer.
func (o poolObservers) LeaseLost() { o.m.LeaseLost() }

// TicketsWritten implements gateway.Observer.
func (o poolObservers) TicketsWritten(took time.Duration) {
	o.m.DiskWrite(telemetry.DiskTickets, took)
}

type poolObserver struct {
	m *telemetry.Metrics
	p *telemetry.Pool
}

// Moved implements gateway.PoolObserver.
func (o poolObserver) Moved(t kmutex.Trace) {
	switch t.Kind {
	case kmutex.TraceQueued:
		o.m.Hops(uint32(t.Count))
	case kmutex.TraceBatonSent:
		o.p.BatonMoved()
	default: // nothing to count
	}
}

// Sent implements gateway.PoolObserver.
func (o poolObserver) Sent(k kmutex.Kind) { o.p.MessageSent(k) }

// Received implements gateway.PoolObserver.
func (o poolObserver) Received(k kmutex.Kind) { o.p.MessageReceived(k) }

// Recovered implements gateway.PoolObserver.
func (o poolObserver) Recovered(why gateway.Reason, took time.Duration) {
	o.p.Recovered(string(why))
	o.m.RecoveryTook(took)
}

// Overtaken implements gateway.PoolObserver.
func (o poolObserver) Overtaken() { o.p.Overtaken() }

// AuditFailed implements gateway.PoolObserver.
func (o poolObserver) AuditFailed() { o.p.AuditFailed() }

// Slots implements gateway.PoolObserver.
func (o poolObserver) Slots(inUse int) { o.p.Slots(inUse) }

// linkObserver counts what the links do.
type linkObserver struct{ m *telemetry.Metrics }

// Sent implements transport.Observer; the pools count their messages.
func (linkObserver) Sent(kmutex.Kind) {}

// Received implements transport.Observer.
func (linkObserver) Received(kmutex.Kind) {}

// Batch implements transport.Observer.
func (o linkObserver) Batch(messages, _ int) {
	if messages > 0 {
		o.m.BatchSize(messages)
	}
}

// Refused implements transport.Observer.
func (o linkObserver) Refused(cause transport.Cause) {
	if !cause.Expected() {
		o.m.Refused(string(cause))
	}
}

// refusalCauses are all that linkObserver counts.
func refusalCauses() []string {
	var all []string
	for _, cause := range transport.Causes() {
		all = append(all, string(cause))
	}
	return all
}

// Reconnected implements transport.Observer.
func (linkObserver) Reconnected() {}

// gatewayPools translates what this gateway decides about its pools.
func gatewayPools(cfg *config.Config) map[string]gateway.PoolConfig {
	out := make(map[string]gateway.PoolConfig, len(cfg.Pools))
	for _, p := range cfg.Pools {
		out[p.Name] = gateway.PoolConfig{
			QueueLimit: p.Queue.Limit, ClientLimit: p.Queue.PerClient.Limit,
			ClientInFlight: p.Queue.PerClient.InFlight, ClientTickets: p.Queue.PerClient.Tickets,
			Fair: p.Queue.Order == config.OrderFair, AskInterval: p.AskInterval.Every,
		}
	}
	return out
}

// proxyConfig translates the configuration's routes and pools.
func proxyConfig(cfg *config.Config) (proxy.Config, error) {
	out := proxy.Config{
		AccessLog: accessFormat(cfg.Log), TrustedProxies: cfg.TrustedProxies, SampleRatio: cfg.Telemetry.SampleRatio,
	}
	for _, p := range cfg.Pools {
		secure, err := upstreamTLS(p.Transport.TLS)
		if err != nil {
			return out, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		header := p.Transport.ResponseHeaderTimeout
		if header == 0 {
			header = -1 // the file's 0 is no bound, the proxy's its default
		}
		out.Pools = append(out.Pools, proxy.Pool{
			Name: p.Name, Upstreams: p.Upstreams, QueueTimeout: p.Queue.Timeout,
			TellClients: tellsClients(p.Queue), ClientHeader: p.Queue.PerClient.Key.Header,
			HoldMax: p.Hold.Max, HoldIdle: p.Hold.Idle, MinUpload: p.Hold.MinUpload, Health: proxy.Health(p.Health), Fence: p.Fence, Tickets: p.Tickets,
			Transport: proxy.Transport{DialTimeout: p.Transport.DialTimeout, ResponseHeaderTimeout: header, IdleTimeout: p.Transport.IdleTimeout, TLS: secure},
		})
	}
	for _, r := range cfg.Routes {
		out.Routes = append(out.Routes, proxy.Route{
			Pool: r.Pool, StripPrefix: r.StripPrefix, Upstreams: r.Upstreams,
			Match: proxy.Match{Host: r.Match.Host, PathPrefix: r.Match.PathPrefix, Methods: r.Match.Methods},
		})
	}
	return out, nil
}

// tellsClients reports whether a pool's requests need to be told apart by client;
// its tickets always are.
func tellsClients(q config.Queue) bool {
	return q.PerClient.Limit > 0 || q.PerClient.InFlight > 0 || q.Order == config.OrderFair
}

func accessFormat(l config.Log) proxy.AccessFormat {
	switch {
	case !l.Access:
		return proxy.AccessOff
	case l.AccessFormat == config.AccessCommon:
		return proxy.AccessCommon
	case l.AccessFormat == config.AccessCombined:
		return proxy.AccessCombined
	case l.Format == "json" && (l.Level == "info" || l.Level == "debug"):
		return proxy.AccessJSON
	default:
		return proxy.AccessStructured
	}
}

// upstreamTrust is how each pool's upstreams are reached over TLS.
type upstreamTrust map[string]*tls.Config

// keep has cfg use what t has where it says the same. Whoever is reached in the same
// way keeps its connections when the configuration is read again. It returns what
// cfg uses then, and whether that is anything new.
func (t upstreamTrust) keep(cfg *proxy.Config) (now upstreamTrust, changed bool) {
	now = make(upstreamTrust, len(cfg.Pools))
	for i := range cfg.Pools {
		p := &cfg.Pools[i]
		if before, known := t[p.Name]; known && sameTLS(before, p.Transport.TLS) {
			p.Transport.TLS = before
		} else {
			changed = true
		}
		now[p.Name] = p.Transport.TLS
	}
	return now, changed
}

// sameTLS reports whether two results of upstreamTLS say the same.
func sameTLS(a, b *tls.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.InsecureSkipVerify == b.InsecureSkipVerify && a.RootCAs.Equal(b.RootCAs)
}

func upstreamTLS(t config.UpstreamTLS) (*tls.Config, error) {
	if t.CA == "" && !t.InsecureSkipVerify {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("transport.tls.ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("transport.tls.ca: %s holds no certificate in PEM form", t.CA)
		}
	}
	return out, nil
}
