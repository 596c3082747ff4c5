package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// errLogOption is wrapped by NewLogger's error for an unknown level or format.
var errLogOption = errors.New("telemetry: unknown log option")

// LogSettings are the settings of a logger, and of all loggers derived from it, that can change while
// it is in use. It is safe for concurrent use.
type LogSettings struct {
	level slog.LevelVar
	text  atomic.Bool // else json
}

// NewLogger returns a logger that writes to w in format json or text, from
// level debug, info, warn or error on.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, *LogSettings, error) {
	s := new(LogSettings)
	if err := s.Set(level, format); err != nil {
		return nil, nil, err
	}
	lines := &lockedWriter{to: w}
	options := &slog.HandlerOptions{Level: &s.level, ReplaceAttr: plain}
	return slog.New(&formatHandler{s, slog.NewJSONHandler(lines, options), slog.NewTextHandler(lines, options)}), s, nil
}

// plain writes a duration as a number of milliseconds, with _ms in its name, and a joined error on
// one line.
func plain(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration().Microseconds())/1000)
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			return slog.String(a.Key, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	default:
	}
	return a
}

// Set changes level and format, or neither if one is unknown.
func (s *LogSettings) Set(level, format string) error {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	l, ok := levels[level]
	if !ok {
		return fmt.Errorf("%w: level %q; write debug, info, warn or error", errLogOption, level)
	}
	if format != "json" && format != "text" {
		return fmt.Errorf("%w: format %q; write json or text", errLogOption, format)
	}
	s.level.Set(l)
	s.text.Store(format == "text")
	return nil
}

// formatHandler writes JSON or text, as the settings say.
type formatHandler struct {
	settings   *LogSettings
	json, text slog.Handler
}

var _ slog.Handler = (*formatHandler)(nil)

func (h *formatHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.json.Enabled(ctx, level)
}

func (h *formatHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.settings.text.Load() {
		return h.text.Handle(ctx, r)
	}
	return h.json.Handle(ctx, r)
}

func (h *formatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &formatHandler{h.settings, h.json.WithAttrs(attrs), h.text.WithAttrs(attrs)}
}

func (h *formatHandler) WithGroup(name string) slog.Handler {
	return &formatHandler{h.settings, h.json.WithGroup(name), h.text.WithGroup(name)}
}

// lockedWriter keeps the lines of the two formats apart; each locks only against
// itself.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *lockedWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(line)
}
