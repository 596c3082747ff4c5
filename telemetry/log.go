package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// ErrLogOption is what NewLogger wraps when a level or format is unknown.
var ErrLogOption = errors.New("telemetry: unknown log option")

// NewLogger returns a logger that writes to w in format json or text, from
// level debug, info, warn or error on; the level can be changed later.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	lv := new(slog.LevelVar)
	if err := SetLevel(lv, level); err != nil {
		return nil, nil, err
	}
	options := &slog.HandlerOptions{Level: lv}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), lv, nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), lv, nil
	default:
		return nil, nil, fmt.Errorf("%w: format %q; write json or text", ErrLogOption, format)
	}
}

// SetLevel sets lv to the level of that name.
func SetLevel(lv *slog.LevelVar, level string) error {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	l, ok := levels[level]
	if !ok {
		return fmt.Errorf("%w: level %q; write debug, info, warn or error", ErrLogOption, level)
	}
	lv.Set(l)
	return nil
}
