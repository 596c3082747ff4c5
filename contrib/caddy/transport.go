package kgate

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/proxy"
)

// Transport is Caddy's HTTP transport, which writes requests to upstreams only as long as
// their slots are valid, and sends the header Kgate-Fence. Requests without a slot, such
// as health checks, are sent as ever, but for what only kgate says. It has the settings of the transport http.
type Transport struct {
	reverseproxy.HTTPTransport

	app    *App
	fenced atomic.Pointer[http.RoundTripper]
}

var (
	_ caddy.Provisioner         = (*Transport)(nil)
	_ caddy.CleanerUpper        = (*Transport)(nil)
	_ http.RoundTripper         = (*Transport)(nil)
	_ reverseproxy.TLSTransport = (*Transport)(nil)
	_ caddyfile.Unmarshaler     = (*Transport)(nil)
)

// CaddyModule implements caddy.Module.
func (*Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.kgate", New: func() caddy.Module { return new(Transport) }}
}

// Provision implements caddy.Provisioner.
func (t *Transport) Provision(ctx caddy.Context) (err error) {
	if slices.Contains(t.Versions, "3") {
		return errors.New("kgate: this transport has no HTTP/3 to upstreams: remove 3 from versions")
	}
	if t.TLS != nil && (t.ProxyProtocol != "" || strings.Contains(t.TLS.ServerName, "{")) {
		// Caddy then speaks TLS itself, and what is below cannot be fenced.
		return errors.New("kgate: this transport has no TLS to upstreams with proxy_protocol, or with a placeholder in tls_server_name: use transport http there")
	}
	if t.app, err = appOf(ctx); err != nil {
		return err
	}
	return t.HTTPTransport.Provision(ctx)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	m := t.app.member.Load()
	if m == nil || kgate.FromContext(r.Context()) == nil {
		r = r.WithContext(r.Context())
		proxy.RemoveForbidden(r)
		return t.HTTPTransport.RoundTrip(r)
	}
	fenced := t.fenced.Load()
	if fenced == nil {
		under := m.node.Transport(t.Transport)
		if fenced = &under; !t.fenced.CompareAndSwap(nil, fenced) {
			fenced = t.fenced.Load()
		}
	}
	t.SetScheme(r)
	return (*fenced).RoundTrip(r)
}

// Cleanup implements caddy.CleanerUpper.
func (t *Transport) Cleanup() error {
	if fenced := t.fenced.Load(); fenced != nil {
		(&http.Client{Transport: *fenced}).CloseIdleConnections()
	}
	return t.HTTPTransport.Cleanup()
}

// UnmarshalCaddyfile reads what the transport http reads.
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return t.HTTPTransport.UnmarshalCaddyfile(d)
}
