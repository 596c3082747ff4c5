package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// What gateways ask each other beside the messages of the algorithm is JSON over
// HTTP on the peer port: it is rare, can be long, and wants an answer each.

// fleetPath is where the fleet handler of [Gateway.Start] answers other gateways.
const fleetPath = "/v1/fleet/"

// CallFleet asks the fleet handler of another gateway, by POST if there is a body. The
// path begins with a slash. It fails with ErrElsewhere for who is not in the view.
func (g *Gateway) CallFleet(ctx context.Context, name, path string, body, into any) error {
	m, in := g.views.View().Named(name)
	if !in {
		return fmt.Errorf("%w: %s is not in the cluster", admission.ErrElsewhere, name)
	}
	return g.call(ctx, m.PeerAddr, fleetPath+strings.TrimPrefix(path, "/"), body, into)
}

func (g *Gateway) startExchange(fleet http.Handler) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pools/{pool}/line", g.serveLine)
	mux.HandleFunc("POST "+ticketsPath, g.serveTicket)
	if fleet != nil {
		mux.Handle(fleetPath, http.StripPrefix(strings.TrimSuffix(fleetPath, "/"), fleet))
	}
	g.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		BaseContext:       func(net.Listener) context.Context { return g.ctx },
		ErrorLog:          slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug),
	}
	g.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			// The call that wants the connection may be gone meanwhile; net/http
			// dials on.
			const patience = 2 * time.Second
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return g.exchange.Dial(ctx, addr)
		},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     10 * time.Second,
	}}
	g.wg.Go(func() {
		if err := g.server.Serve(g.exchange); !errors.Is(err, http.ErrServerClosed) {
			g.cfg.Logger.Error("calls of other gateways cannot be served", slog.Any("error", err))
		}
	})
}

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	// A cut answer is the asking side's to notice; it asks again.
	_ = json.NewEncoder(w).Encode(body)
}

// serveLine tells when the waiting requests of this gateway have arrived.
func (g *Gateway) serveLine(w http.ResponseWriter, r *http.Request) {
	p := g.pool(r.PathValue("pool"))
	if p == nil {
		http.Error(w, "unknown pool", http.StatusNotFound)
		return
	}
	respond(w, p.lineView())
}
