package kgate

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
)

var errNotStarted = errors.New("kgate: the node has not started yet")

// Handler admits requests to a pool, and passes them on with a slot. It sets the
// placeholders {http.kgate.pool}, {http.kgate.wait}, {http.kgate.wait_ms} and
// {http.kgate.fence} of those that it admits.
type Handler struct {
	Pool

	app *App
}

// Admin serves the node's status page, API and metrics: for operators alone.
type Admin struct {
	app *App
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Provisioner           = (*Admin)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Admin)(nil)
)

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.kgate", New: func() caddy.Module { return new(Handler) }}
}

// CaddyModule implements caddy.Module.
func (*Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.kgate_admin", New: func() caddy.Module { return new(Admin) }}
}

// appOf returns the App of a configuration that is being provisioned.
func appOf(ctx caddy.Context) (*App, error) {
	app, err := ctx.App("kgate")
	if err != nil {
		return nil, err
	}
	return app.(*App), nil
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	if h.Name == "" {
		return errors.New("kgate: the handler needs the name of a pool")
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterConnContext(kgate.ConnContext) // notices clients that leave before their body is read
	}
	if h.app, err = appOf(ctx); err != nil {
		return err
	}
	return h.app.share(h.Pool)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	m := h.app.member.Load()
	if m == nil {
		return caddyhttp.Error(http.StatusServiceUnavailable, errNotStarted)
	}
	var err error
	m.node.Middleware(h.Name)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			slot := kgate.FromContext(r.Context())
			repl.Set("http.kgate.pool", h.Name)
			repl.Set("http.kgate.wait", slot.Wait())
			repl.Set("http.kgate.wait_ms", slot.Wait().Seconds()*1e3)
			repl.Set("http.kgate.fence", slot.Fence())
		}
		err = next.ServeHTTP(w, r)
	})).ServeHTTP(w, r)
	return err
}

// Provision implements caddy.Provisioner.
func (h *Admin) Provision(ctx caddy.Context) (err error) {
	h.app, err = appOf(ctx)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	m := h.app.member.Load()
	if m == nil {
		return caddyhttp.Error(http.StatusServiceUnavailable, errNotStarted)
	}
	gateway.Admin(m.node.Node).ServeHTTP(w, r)
	return nil
}
