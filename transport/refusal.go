package transport

import (
	"context"
	"log/slog"

	"github.com/kgate/kgate/oncelog"
)

// refusals counts everything that is refused, and logs the first of each cause
// and minute, with how many were not logged before it.
type refusals struct {
	observer Observer
	logger   *slog.Logger

	once oncelog.Limit
}

func newRefusals(o Observer, l *slog.Logger) *refusals {
	return &refusals{observer: o, logger: l}
}

// add counts and perhaps logs. Attrs are those of slog.
func (r *refusals) add(cause Cause, err error, attrs ...slog.Attr) {
	r.observer.Refused(cause)
	suppressed, ok := r.once.Allow(string(cause))
	if !ok {
		return
	}
	attrs = append(attrs, slog.String("cause", string(cause)), slog.Any("error", err))
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	r.logger.LogAttrs(context.Background(), slog.LevelWarn, "refused", attrs...)
}
