package transport

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logPeriod is how often a line about the same trouble may be logged.
const logPeriod = time.Minute

// refusals counts everything that is refused, and logs the first of each cause
// and minute, with how many were not logged before it.
type refusals struct {
	observer Observer
	logger   *slog.Logger

	mu   sync.Mutex
	seen map[Cause]refusal
}

type refusal struct {
	logged     time.Time
	suppressed int
}

func newRefusals(o Observer, l *slog.Logger) *refusals {
	return &refusals{observer: o, logger: l, seen: make(map[Cause]refusal)}
}

// add counts and perhaps logs. Attrs are those of slog.
func (r *refusals) add(cause Cause, err error, attrs ...slog.Attr) {
	r.observer.Refused(cause)
	suppressed, ok := r.allow(cause)
	if !ok {
		return
	}
	attrs = append(attrs, slog.String("cause", string(cause)), slog.Any("error", err))
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	r.logger.LogAttrs(context.Background(), slog.LevelWarn, "refused", attrs...)
}

// allow reports whether the cause may be logged now, and how often it could
// not since the last time. Causes are few: the map is bounded.
func (r *refusals) allow(cause Cause) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	last, known := r.seen[cause]
	if known && now.Sub(last.logged) < logPeriod {
		last.suppressed++
		r.seen[cause] = last
		return 0, false
	}
	r.seen[cause] = refusal{logged: now}
	return last.suppressed, true
}
