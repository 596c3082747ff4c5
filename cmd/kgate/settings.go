package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/proxy"
	"github.com/kgate/kgate/proxy/downstream"
)

// nodeConfig translates the part of the configuration that a reload may change.
func (s *server) nodeConfig(cfg *config.Config) (gateway.Config, error) {
	out := gateway.Config{
		AccessLog: accessFormat(cfg.Log), AccessWriter: s.accessLog,
		Config: kgate.Config{TrustedProxies: cfg.TrustedProxies}, SampleRatio: cfg.Telemetry.SampleRatio, TracerProvider: s.tracer,
	}
	for i, r := range cfg.Routes {
		pages, err := errorPages(r.ErrorPages)
		if err != nil {
			return out, fmt.Errorf("routes[%d].%w", i, err)
		}
		out.Routes = append(out.Routes, proxy.Route{
			Pool: r.Pool, StripPrefix: r.StripPrefix, Upstreams: r.Upstreams,
			Match:          proxy.Match{Host: r.Match.Host, PathPrefix: r.Match.PathPrefix, Methods: r.Match.Methods},
			RequestHeaders: headerEdits(r.RequestHeaders), ResponseHeaders: headerEdits(r.ResponseHeaders),
			Access: proxy.Access{Allow: r.Allow, Deny: r.Deny}, CORS: proxy.CORS(r.CORS), ErrorPages: pages,
		})
	}
	for _, l := range cfg.Listen.TCP {
		t := proxy.TCP{Listener: l.Addr, Pool: l.Pool, Access: proxy.Access{Allow: l.Allow, Deny: l.Deny}}
		for _, n := range l.SNI {
			t.Names = append(t.Names, proxy.ServerName(n))
		}
		out.TCP = append(out.TCP, t)
	}
	var err error
	if out.Edge, err = edge(cfg); err != nil {
		return out, err
	}
	out.Pools, err = nodePools(cfg)
	return out, err
}

// edge translates the settings for clients, and reads the files that they name.
func edge(cfg *config.Config) (proxy.Edge, error) {
	l := cfg.Listen
	out := proxy.Edge{RequestIDHeader: cfg.RequestIDHeader, HSTS: l.HSTS.Value(), Access: proxy.Access{Allow: l.Allow, Deny: l.Deny}, WaitingHeaderBytes: int64(l.WaitingHeaderBytes)}
	if l.HTTPSOnly {
		out.HTTPSPort = l.RedirectPort()
	}
	var err error
	out.ErrorPages, err = errorPages(cfg.ErrorPages)
	return out, err
}

// errorPages reads the pages' files.
func errorPages(pages []config.ErrorPage) ([]*proxy.ErrorPage, error) {
	var out []*proxy.ErrorPage
	for i, p := range pages {
		page, err := errorPage(p)
		if err != nil {
			return nil, fmt.Errorf("error_pages[%d].file: %w", i, err)
		}
		out = append(out, page)
	}
	return out, nil
}

func errorPage(p config.ErrorPage) (*proxy.ErrorPage, error) {
	text, err := os.ReadFile(p.File)
	if err != nil {
		return nil, err
	}
	statuses := make([]string, len(p.Status))
	for i, s := range p.Status {
		statuses[i] = s.String()
	}
	contentType := "text/html; charset=utf-8"
	if strings.HasSuffix(strings.ToLower(p.File), ".txt") {
		contentType = "text/plain; charset=utf-8"
	}
	return proxy.NewErrorPage(statuses, contentType, string(text))
}

// certificateFiles returns the certificates for clients, the default one first.
func certificateFiles(t config.ClientTLS) []downstream.CertificateFiles {
	files := []downstream.CertificateFiles{{Cert: t.Cert, Key: t.Key}}
	for _, c := range t.Certificates {
		files = append(files, downstream.CertificateFiles(c))
	}
	return files
}

func headerEdits(e config.HeaderEdits) proxy.HeaderEdits {
	out := proxy.HeaderEdits{Remove: e.Remove}
	for _, f := range e.Set {
		out.Set = append(out.Set, proxy.Field(f))
	}
	for _, f := range e.Add {
		out.Add = append(out.Add, proxy.Field(f))
	}
	return out
}

// nodePools translates the pools, and reads the files that they name.
func nodePools(cfg *config.Config) ([]gateway.Pool, error) {
	var out []gateway.Pool
	for _, p := range cfg.Pools {
		secure, err := upstreamTLS(p.Transport.TLS)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		page, err := waitingPage(p.Queue.Page)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		out = append(out, gateway.Pool{
			Pool: kgate.Pool{
				Name: p.Name, K: p.K, EarlyBinding: p.Binding == admission.BindingEarly, ReclaimHold: p.Reclaim == admission.ReclaimHold,
				QueueLimit: p.Queue.Limit, QueueTimeout: p.Queue.Timeout, Fair: p.Queue.Order == config.OrderFair, ClientWeights: clientWeights(p.Queue.Weights),
				ClientLimit: p.Queue.PerClient.Limit, ClientInFlight: p.Queue.PerClient.InFlight, ClientTickets: p.Queue.PerClient.Tickets,
				ClientHeader: p.Queue.PerClient.Key.Header, TicketTTL: p.TicketTTL, HoldMax: p.Hold.Max,
			},
			Tickets: p.Tickets, Page: page, Fence: p.Fence, Upstreams: p.Upstreams, Backup: p.Backup,
			HoldIdle: p.Hold.Idle, MinUpload: p.Hold.MinUpload, MinDownload: p.Hold.MinDownload,
			RateDown: int64(p.Rate.Down), RateUp: int64(p.Rate.Up), RequestRate: int64(p.Rate.PerRequest), Health: proxy.Health(p.Health),
			Transport: proxy.Transport{
				DialTimeout: p.Transport.DialTimeout, ResponseHeaderTimeout: unbounded(p.Transport.ResponseHeaderTimeout), IdleTimeout: p.Transport.IdleTimeout, TLS: secure,
				Resolve: unbounded(p.Transport.Resolve), Host: p.Transport.Host, ProxyHeader: proxyHeader(p.Transport.ProxyProtocol),
			},
		})
	}
	return out, nil
}

// waitingPage returns the page that a browser shows while it waits; nil if the pool has none.
func waitingPage(p config.Page) (*proxy.Page, error) {
	if !p.Enabled {
		return nil, nil
	}
	var text []byte
	if p.Template != "" {
		var err error
		if text, err = os.ReadFile(p.Template); err != nil {
			return nil, fmt.Errorf("queue.page.template: %w", err)
		}
	}
	page, err := proxy.NewPage(p.Keep, string(text))
	if err != nil {
		return nil, fmt.Errorf("queue.page.template: %w", err)
	}
	return page, nil
}

func clientWeights(all []config.ClientWeight) map[string]float64 {
	out := make(map[string]float64, len(all))
	for _, w := range all {
		out[w.Client] = w.Weight
	}
	return out
}

// unbounded translates a duration: the file's 0 is no bound, the proxy's its default.
func unbounded(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// proxyHeader returns the version as a number.
func proxyHeader(p config.ProxyProtocol) int {
	return map[config.ProxyProtocol]int{config.ProxyV1: 1, config.ProxyV2: 2}[p]
}

func accessFormat(l config.Log) proxy.AccessFormat {
	switch {
	case !l.Access:
		return proxy.AccessOff
	case l.Format == "json" && (l.Level == "info" || l.Level == "debug"):
		return proxy.AccessJSON
	default:
		return proxy.AccessStructured
	}
}

// upstreamTrust is how each pool's upstreams are reached over TLS.
type upstreamTrust map[string]*tls.Config

// keep replaces the TLS configurations of pools by equal ones of t, and returns all that are then in use.
// So upstreams whose TLS is unchanged keep their connections over a reload.
func (t upstreamTrust) keep(pools []gateway.Pool) upstreamTrust {
	now := make(upstreamTrust, len(pools))
	for i := range pools {
		p := &pools[i]
		if before, known := t[p.Name]; known && sameTLS(before, p.Transport.TLS) {
			p.Transport.TLS = before
		}
		now[p.Name] = p.Transport.TLS
	}
	return now
}

// sameTLS reports whether two results of upstreamTLS are equal.
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
