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

// What gateways ask each other, apart from the messages of the algorithm, is JSON over
// HTTP on the peer port: it is rare, can be long, and each question wants an answer.

// fleetPath is where the fleet handler of [Gateway.Start] answers other gateways.
const fleetPath = "/v1/fleet/"

// CallFleet asks the fleet handler of another gateway, by POST if there is a body. The
// path begins with a slash. It fails with ErrElsewhere for a gateway that is not in the view.
func (g *Gateway) CallFleet(ctx context.Context, name, path string, body, into any) error {
	m, in := g.views.View().Named(name)
	if !in {
		return fmt.Errorf("%w: %s is not in the cluster", admission.ErrElsewhere, name)
	}
	return g.call(ctx, m, fleetPath+strings.TrimPrefix(path, "/"), body, into)
}

// startExchange begins to answer other gateways, and to ask them.
func (e *env) startExchange(handler http.Handler) *http.Server {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		BaseContext:       func(net.Listener) context.Context { return e.ctx },
		ErrorLog:          slog.NewLogLogger(e.cfg.Logger.Handler(), slog.LevelDebug),
	}
	e.client, e.polling = e.newClient(), e.newClient()
	e.wg.Go(func() {
		if err := server.Serve(e.exchange); !errors.Is(err, http.ErrServerClosed) {
			e.cfg.Logger.Error("calls of other gateways cannot be served", slog.Any("error", err))
		}
	})
	return server
}

// newClient returns one with connections of its own.
func (e *env) newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			// net/http goes on dialing when the call that wanted the connection
			// has ended.
			const patience = 2 * time.Second
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return e.exchange.Dial(ctx, addr)
		},
		MaxConnsPerHost:     mostCalls,
		MaxIdleConnsPerHost: mostCalls,
		IdleConnTimeout:     10 * time.Second,
	}}
}

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	// A cut answer is the asking side's to notice; it asks again.
	_ = json.NewEncoder(w).Encode(body)
}
