package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/kgate/kgate/kmutex"
)

// Reports and installs are JSON over HTTP on the peer port: they are rare, can be
// long, and want an answer each.

const (
	reportPath = "/v1/pools/{pool}/reports"
	// maxReport bounds a report: a million waiting tickets and more.
	maxReport = 64 << 20
)

func (g *Gateway) startExchange() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+reportPath, g.serveReport)
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
			return g.cfg.Exchange.Dial(ctx, addr)
		},
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     10 * time.Second,
	}}
	g.wg.Go(func() {
		if err := g.server.Serve(g.cfg.Exchange); !errors.Is(err, http.ErrServerClosed) {
			g.cfg.Logger.Error("reports of other gateways cannot be taken in", slog.Any("error", err))
		}
	})
}

// sendReport sends a report to its pool's home and returns the answer.
func (g *Gateway) sendReport(ctx context.Context, addr, pool string, report *kmutex.Report) (*kmutex.Install, error) {
	body, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	target := "http://" + addr + "/v1/pools/" + url.PathEscape(pool) + "/reports"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReport))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusGone:
		return nil, errSuperseded
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("gateway: home answers %s: %.200s", resp.Status, data)
	}
	in := new(kmutex.Install)
	if err := json.Unmarshal(data, in); err != nil {
		return nil, fmt.Errorf("gateway: install of pool %q: %w", pool, err)
	}
	return in, nil
}

// serveReport takes in a report and answers, when all have come, with the
// install.
func (g *Gateway) serveReport(w http.ResponseWriter, r *http.Request) {
	var report kmutex.Report
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReport)).Decode(&report); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := g.pool(r.PathValue("pool"))
	if p == nil {
		http.Error(w, "unknown pool", http.StatusNotFound)
		return
	}
	in, err := p.collect(r.Context(), report)
	switch {
	case errors.Is(err, errSuperseded):
		http.Error(w, err.Error(), http.StatusGone)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	case in == nil:
		http.Error(w, "not part of this epoch", http.StatusForbidden)
	default:
		w.Header().Set("Content-Type", "application/json")
		// A cut answer is the asking side's to notice; it asks again.
		_ = json.NewEncoder(w).Encode(in)
	}
}
