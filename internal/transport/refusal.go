package transport

import (
	"context"
	"log/slog"
	"net"
	"slices"

	"github.com/kgate/kgate/internal/oncelog"
)

// causes are all of them, in the order of the constants.
var causes = []Cause{
	CauseIncomplete, CauseSlow, CauseHalfOpen, CauseMagic, CauseVersion, CauseKind, CauseStreams,
	CausePlaintext, CauseTLS, CauseCertificate, CauseHandshake, CauseNode, CauseDirection, CauseSequence,
	CauseFrame, CauseOversized, CauseProtocol, CauseHandler, CauseOverflow,
}

// Causes returns the causes that call for attention, in the order of the constants.
func Causes() []Cause { return slices.DeleteFunc(slices.Clone(causes), Cause.Expected) }

// Expected reports whether the cause belongs to a cluster's normal life: gateways learn of
// each other's comings and goings at different times, and a gateway that stops closes connections
// at any moment. A fault that lasts shows as a link that is down.
func (c Cause) Expected() bool {
	return c == CauseIncomplete || c == CauseNode || c == CauseDirection
}

// refusals counts everything that is refused, and logs the first of each cause and minute,
// with the number that was not logged before it.
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

// refuse closes a connection and counts it.
func (t *Transport) refuse(raw net.Conn, cause Cause, err error) {
	_ = raw.Close()
	if t.ctx.Err() != nil {
		return // not refused but closed with the transport
	}
	t.refusals.add(cause, err, slog.String("remote", raw.RemoteAddr().String()))
}

// answerRefusal tells the other end why, then refuses.
func (t *Transport) answerRefusal(raw, conn net.Conn, s status, cause Cause, err error) {
	_, _ = conn.Write(answerOf(s)) // it is closed anyway
	t.refuse(raw, cause, err)
}
