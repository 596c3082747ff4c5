package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
)

// watch aborts the exchange when its slot is lost or held too long, until
// hold.end.
func (ex *exchange) watch() {
	if ex.conn != nil && ex.conn.TellsAcked() && ex.http1 && (ex.hold.idle > 0 || ex.hold.download.over > 0) {
		ex.hold.client.conn = ex.conn.NetConn()
	}
	ex.hold.begin(ex, ex.snapshot.alarms)
}

// cut implements cutter.
func (ex *exchange) cut(cause *abortCause) {
	if u := ex.attempt.backend.Load(); u != nil {
		u.client.EndLapsed()
	}
	ex.ctx.cancel(cause)
	// The exchange may be stuck in reading a body that the client does not
	// send, or in writing an answer that it does not read.
	rc := http.NewResponseController(ex.ResponseWriter)
	if ex.body.unread() {
		_ = rc.SetReadDeadline(time.Now())
	}
	patience := lastWord
	if ex.wrote.Load() {
		patience = 0
	}
	_ = rc.SetWriteDeadline(time.Now().Add(patience))
	if ex.conn != nil && !ex.http1 {
		ex.hold.force = time.AfterFunc(patience+lastWord, ex.closeBlocked)
	}
}

// closeBlocked closes an HTTP/2 client's connection that is still blocked some time
// after abort. In HTTP/2 a deadline of net/http ends a stream by a frame, which waits
// behind those that the client does not read. Other streams of the connection are
// stuck as well.
func (ex *exchange) closeBlocked() {
	ex.hold.mu.Lock()
	defer ex.hold.mu.Unlock()
	if !ex.hold.over {
		ex.conn.CloseBlocked()
	}
}

// said returns what clients and the log are told: a slot is lost, too, when the gateway stops.
func (c *Config) said(cause *abortCause) *abortCause {
	if cause == errLost && c.Draining != nil && c.Draining() {
		return errStops
	}
	return cause
}

// answerAborted tells the client why there is no answer from the upstream, which
// may have begun to act on the request.
func (ex *exchange) answerAborted(r *http1.Request, cause *abortCause) {
	switch cause = ex.snapshot.cfg.said(cause); cause {
	case errStops:
		ex.rec.Outcome = admission.Draining.Outcome()
		ex.writeProblem(r, newRefusal(ex.Header(), ex.rec.Pool, &admission.Refusal{Reason: admission.Draining}, cause.detail))
	case errLost:
		ex.rec.Outcome = admission.Isolated.Outcome()
		ex.writeProblem(r, newRefusal(ex.Header(), ex.rec.Pool, &admission.Refusal{Reason: admission.Isolated}, cause.detail))
	case errMinUpload, errStalled:
		ex.answerProblem(r, http.StatusRequestTimeout, cause.detail)
	default:
		ex.rec.Outcome = admission.OutcomeUpstreamError
		ex.answerProblem(r, http.StatusGatewayTimeout, cause.detail)
	}
}

// logAborted says why an admitted request came to an early end. There are at most
// as many such lines as slots.
func (ex *exchange) logAborted(r *http1.Request, cause *abortCause) {
	cause = ex.snapshot.cfg.said(cause)
	if ex.hold.slot == nil {
		return
	}
	ex.snapshot.cfg.Logger.LogAttrs(context.WithoutCancel(ex.ctx.base), slog.LevelWarn, "request broken off",
		slog.String("cause", cause.cause),
		slog.String("pool", ex.rec.Pool),
		slog.String("upstream", ex.rec.Upstream),
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Float64("hold_ms", milliseconds(ex.rec.Hold)),
		ex.traceAttr(),
	)
}
