package proxy

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// logAccess writes the request's line.
func (h *plane) logAccess(ex *exchange, r *http.Request) {
	ctx := context.WithoutCancel(r.Context())
	if !h.cfg.Logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	rec, path := &ex.rec, r.URL.Path
	if isTicketPath(path) {
		path = ticketsPath // the rest is a secret
	}
	h.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "request",
		slog.String("remote", r.RemoteAddr),
		slog.String("method", r.Method),
		slog.String("host", r.Host),
		slog.String("path", path),
		slog.String("proto", r.Proto),
		slog.String("pool", rec.Pool),
		slog.String("outcome", rec.Outcome.String()),
		slog.Int("status", rec.Status),
		slog.String("upstream", rec.Upstream),
		slog.Int("upstream_status", rec.UpstreamStatus),
		slog.Float64("wait_ms", milliseconds(rec.Wait)),
		slog.Float64("hold_ms", milliseconds(rec.Hold)),
		slog.Int64("bytes", rec.Bytes),
		slog.Bool("aborted", rec.Aborted),
	)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// stdLog passes what net/http logs on to slog, at level Debug: such lines are
// nearly all about clients that broke off, which the access log tells too, and
// a client must not be able to fill the log.
type stdLog struct {
	logger *slog.Logger
}

// Write implements io.Writer for log.Logger, which calls it once per line.
func (s *stdLog) Write(line []byte) (int, error) {
	s.logger.Debug("net/http", slog.String("text", strings.TrimSpace(string(line))))
	return len(line), nil
}

func (s *stdLog) std() *log.Logger { return log.New(s, "", 0) }
