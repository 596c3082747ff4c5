package transport

import (
	"context"
	"log/slog"

	"github.com/kgate/kgate/internal/oncelog"
)

// causes are all of them, in the order of the constants. Expected is what belongs to a
// cluster's normal life: gateways learn of each other's comings and goings at different
// times, and one that stops closes connections at any moment. A trouble that lasts shows
// as a link that is down.
var causes = []struct {
	cause    Cause
	expected bool
}{
	{CauseIncomplete, true},
	{CauseSlow, false},
	{CauseHalfOpen, false},
	{CauseMagic, false},
	{CauseVersion, false},
	{CauseKind, false},
	{CauseBacklog, false},
	{CauseStreams, false},
	{CausePlaintext, false},
	{CauseTLS, false},
	{CauseCertificate, false},
	{CauseHandshake, false},
	{CauseNode, true},
	{CauseDirection, true},
	{CauseSequence, false},
	{CauseFrame, false},
	{CauseOversized, false},
	{CauseProtocol, false},
	{CauseHandler, false},
	{CauseOverflow, false},
}

// Causes returns the causes that call for attention, in the order of the constants.
func Causes() []Cause {
	var all []Cause
	for _, c := range causes {
		if !c.expected {
			all = append(all, c.cause)
		}
	}
	return all
}

// Expected reports whether the cause belongs to a cluster's normal life.
func (c Cause) Expected() bool {
	for _, known := range causes {
		if known.cause == c {
			return known.expected
		}
	}
	return false
}

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
	level := slog.LevelWarn
	if cause.Expected() {
		level = slog.LevelDebug
	}
	r.logger.LogAttrs(context.Background(), level, "refused", attrs...)
}
