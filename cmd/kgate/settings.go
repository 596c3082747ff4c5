package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/internal/node"
	"github.com/kgate/kgate/proxy"
)

// nodeConfig translates what a reload may change.
func (s *server) nodeConfig(cfg *config.Config) (node.Config, error) {
	out := node.Config{Proxy: proxyConfig(cfg)}
	out.Proxy.Tracer, out.Proxy.AccessWriter = s.tracer, s.commonLog
	if out.Proxy.AccessLog == proxy.AccessJSON {
		out.Proxy.AccessWriter = s.accessLog
	}
	var err error
	out.Pools, err = nodePools(cfg)
	return out, err
}

// nodePools translates the pools, and reads the files that they name.
func nodePools(cfg *config.Config) ([]node.Pool, error) {
	var out []node.Pool
	for _, p := range cfg.Pools {
		secure, err := upstreamTLS(p.Transport.TLS)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		header := p.Transport.ResponseHeaderTimeout
		if header == 0 {
			header = -1 // the file's 0 is no bound, the proxy's its default
		}
		out = append(out, node.Pool{
			K: p.K, Binding: p.Binding, Reclaim: p.Reclaim,
			Limits: node.Limits{
				QueueLimit: p.Queue.Limit, ClientLimit: p.Queue.PerClient.Limit,
				ClientInFlight: p.Queue.PerClient.InFlight, ClientTickets: p.Queue.PerClient.Tickets,
				Fair: p.Queue.Order == config.OrderFair, AskInterval: p.AskInterval.Every,
			},
			Pool: proxy.Pool{
				Name: p.Name, Upstreams: p.Upstreams, QueueTimeout: p.Queue.Timeout,
				TellClients: tellsClients(p.Queue), ClientHeader: p.Queue.PerClient.Key.Header,
				HoldMax: p.Hold.Max, HoldIdle: p.Hold.Idle, MinUpload: p.Hold.MinUpload, Health: proxy.Health(p.Health), Fence: p.Fence, Tickets: p.Tickets,
				Transport: proxy.Transport{DialTimeout: p.Transport.DialTimeout, ResponseHeaderTimeout: header, IdleTimeout: p.Transport.IdleTimeout, TLS: secure},
			},
		})
	}
	return out, nil
}

// proxyConfig translates the routes and the access log.
func proxyConfig(cfg *config.Config) proxy.Config {
	out := proxy.Config{
		AccessLog: accessFormat(cfg.Log), TrustedProxies: cfg.TrustedProxies, SampleRatio: cfg.Telemetry.SampleRatio,
	}
	for _, r := range cfg.Routes {
		out.Routes = append(out.Routes, proxy.Route{
			Pool: r.Pool, StripPrefix: r.StripPrefix, Upstreams: r.Upstreams,
			Match: proxy.Match{Host: r.Match.Host, PathPrefix: r.Match.PathPrefix, Methods: r.Match.Methods},
		})
	}
	return out
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

// keep has pools use what t has where they say the same. Whoever is reached in the same
// way keeps its connections when the configuration is read again. It returns what
// they use then, and whether that is anything new.
func (t upstreamTrust) keep(pools []node.Pool) (now upstreamTrust, changed bool) {
	now = make(upstreamTrust, len(pools))
	for i := range pools {
		p := &pools[i]
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
