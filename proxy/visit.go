package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// visit is what a request, a TCP connection and a request of Middleware have in common:
// when it came, what it asks the pool's line for, its slot, and what it came to.
type visit struct {
	snapshot *snapshot
	hold     hold
	spans    spans
	rec      Record
	info     admission.RequestInfo
	failure  error // why the upstream gave no answer

	arrived, admitted time.Time // admitted is zero until then
}

// lineRequest is what a pool's line is asked for. The caller adds for whom, and how long it
// may wait.
func (v *visit) lineRequest(pool *Pool) admission.Request {
	v.info.Trace = v.rec.TraceID
	req := admission.Request{Pool: pool.Name, Info: &v.info}
	if v.rec.Sampled {
		req.Span = spanBytes(v.spans.server.SpanContext())
	}
	return req
}

// waited notes that the wait is over.
func (v *visit) waited() { v.rec.Wait = time.Since(v.arrived) }

// enter notes that the visit was admitted.
func (v *visit) enter(slot Slot) {
	v.rec.Grant, v.rec.Outcome = slot.GrantInfo(), admission.OutcomeAdmitted
	v.admitted = v.arrived.Add(v.rec.Wait)
	v.traceWait()
	if o := v.snapshot.cfg.Observer; o != nil {
		o.Admitted(&v.rec)
	}
}

// refused notes why the visit was not admitted, and returns what to answer. The header of
// the answer is filled in.
func (v *visit) refused(h http.Header, err error) problem {
	if errors.Is(err, admission.ErrUnknownPool) || errors.Is(err, admission.ErrElsewhere) {
		// The pool is not agreed on yet, or its ticket is with a gateway that does not
		// answer: both pass.
		err = &admission.Refusal{Reason: admission.Isolated}
	}
	var refusal *admission.Refusal
	var ticket *ticketError
	switch {
	case errors.As(err, &refusal):
		v.rec.Outcome, v.rec.Grant.Position = refusal.Reason.Outcome(), refusal.Position
		return newRefusal(h, v.rec.Pool, refusal, refusal.Reason.Detail())
	case errors.As(err, &ticket):
		return problem{Status: ticket.status, Detail: ticket.detail, Pool: v.rec.Pool}
	default:
		v.snapshot.cfg.Logger.Error("admission failed", slog.String("pool", v.rec.Pool), v.traceAttr(), slog.Any("error", err))
		v.rec.Outcome = admission.Isolated.Outcome()
		return problem{Status: http.StatusInternalServerError, Detail: "admission failed", Pool: v.rec.Pool}
	}
}

// logFailure logs why the upstream gave no answer: once a minute for each upstream as a
// warning. The metrics count all.
func (v *visit) logFailure(ctx context.Context) {
	level := slog.LevelDebug
	if v.snapshot.failures.First(v.rec.Pool + " " + v.rec.Upstream) {
		level = slog.LevelWarn
	}
	v.snapshot.cfg.Logger.LogAttrs(ctx, level, "upstream failed", slog.String("pool", v.rec.Pool),
		slog.String("upstream", v.rec.Upstream), v.traceAttr(), slog.Any("error", v.failure))
}

// held notes for how long the visit had its slot.
func (v *visit) held() {
	if !v.admitted.IsZero() {
		v.rec.Hold = time.Since(v.admitted)
	}
}

// done tells the observer, and ends the spans.
func (v *visit) done() {
	if o := v.snapshot.cfg.Observer; o != nil {
		o.Done(&v.rec)
	}
	v.endTrace()
}
