package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LimitedLogger logs the first line of each cause, and then at most one a
// minute, with the number of lines left out since. Use it where a peer or a
// client decides how often an error happens. There is no timer: lines left out
// are reported with the next line of their cause.
type LimitedLogger struct {
	log *slog.Logger
	now func() time.Time

	mu sync.Mutex // guards by
	by map[string]*limit
}

// limit is the state of one cause.
type limit struct {
	last       time.Time
	suppressed uint64
}

// limitInterval is the least time between two lines of a cause.
const limitInterval = time.Minute

// NewLimitedLogger returns a logger that writes to log, nil for none. now is
// its clock; nil is time.Now.
func NewLimitedLogger(log *slog.Logger, now func() time.Time) *LimitedLogger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	return &LimitedLogger{log: log, now: now, by: map[string]*limit{}}
}

// Warn logs msg with the attributes cause and, if lines were left out,
// suppressed. cause is a short constant; the causes beyond the first 32 share
// one line a minute.
func (l *LimitedLogger) Warn(ctx context.Context, cause, msg string, attrs ...slog.Attr) {
	if !l.log.Enabled(ctx, slog.LevelWarn) {
		return
	}
	suppressed, ok := l.pass(cause)
	if !ok {
		return
	}
	all := append(make([]slog.Attr, 0, len(attrs)+2), slog.String("cause", cause))
	if suppressed > 0 {
		all = append(all, slog.Uint64("suppressed", suppressed))
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, msg, append(all, attrs...)...) //nolint:sloglint // the caller's constant
}

// pass reports whether a line of cause may be logged now, and how many were
// not.
func (l *LimitedLogger) pass(cause string) (suppressed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	c, known := l.by[cause]
	if !known && len(l.by) >= maxCauses {
		cause = other
		c, known = l.by[cause]
	}
	if !known {
		l.by[cause] = &limit{last: now}
		return 0, true
	}
	if now.Sub(c.last) < limitInterval {
		c.suppressed++
		return 0, false
	}
	suppressed = c.suppressed
	*c = limit{last: now}
	return suppressed, true
}
