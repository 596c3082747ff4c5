package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/problems"
)

// statusClientGone is what the log shows for a client that left before it was
// answered, nginx's "client closed request".
const statusClientGone = 499

// problem is the body of an answer that the gateway gives itself.
type problem = problems.Details

var refusalDetails = map[Reason]string{
	ReasonQueueFull:    "the line of this pool is full",
	ReasonTimeout:      "no slot became free in time",
	ReasonDraining:     "this gateway is being taken out of service",
	ReasonIsolated:     "this gateway has lost touch with the others and may not admit requests",
	ReasonUpstreamDown: "no upstream of this pool passes its health check",
	ReasonClientLimit:  "this client has as many requests or tickets here as it may",
	ReasonCancelled:    "an operator has taken this request out of the line",
}

// admit gets the request a slot: that of the ticket it brings, or the next one
// in the pool's line, at most for the pool's or the client's time.
func (ex *exchange) admit(r *http.Request, pool *Pool) (Slot, error) {
	s := ex.snapshot
	if ids, ok := r.Header[ticketHeader]; ok {
		return s.redeem(r, pool.Name, ids)
	}
	if pool.Tickets && prefersTicket(r.Header) {
		return ex.admitOrTicket(r, pool)
	}
	ex.note = Note{Method: r.Method, Path: r.URL.Path, Remote: clientAddr(r, s.cfg.TrustedProxies), Trace: ex.rec.TraceID}
	ask := Ask{Pool: pool.Name, Span: ex.spanBytes(), Request: &ex.note}
	if pool.TellClients {
		ask.Client = s.clientKey(r, pool)
	}
	ask.Wait, ex.prefer = queueTimeout(pool.QueueTimeout, r.Header)
	return s.cfg.Admitter.Acquire(r.Context(), ask)
}

// refuse answers a request of a pool that was not admitted.
func (ex *exchange) refuse(r *http.Request, err error) {
	var refusal *Refusal
	var ticket *ticketError
	switch {
	case r.Context().Err() != nil:
		ex.rec.Outcome = OutcomeClientGone
		ex.answerClientGone()
	case errors.As(err, &refusal):
		ex.rec.Outcome, ex.rec.Entry.Position = refusal.outcome(), refusal.Position
		writeRefusal(ex, r, ex.rec.Pool, refusal)
	case errors.As(err, &ticket):
		writeProblem(ex, r, problem{Status: ticket.status, Detail: ticket.detail, Pool: ex.rec.Pool})
	default:
		ex.snapshot.cfg.Logger.Error("admission failed", slog.String("pool", ex.rec.Pool), ex.traceAttr(), slog.Any("error", err))
		ex.rec.Outcome = OutcomeIsolated
		writeProblem(ex, r, problem{Status: http.StatusInternalServerError, Detail: "admission failed", Pool: ex.rec.Pool})
	}
}

// answerClientGone ends a request whose client has left. Usually nobody reads
// it; a client that has only closed its sending side gets to know why.
func (ex *exchange) answerClientGone() {
	ex.clientGone = true
	if ex.http1 { // in HTTP/2 it would end the connection for other requests too
		ex.Header().Set("Connection", "close")
	}
	ex.WriteHeader(statusClientGone)
}

// writeRefusal answers a request that was not admitted.
func writeRefusal(w http.ResponseWriter, r *http.Request, pool string, refusal *Refusal) {
	detail, ok := refusalDetails[refusal.Reason]
	if !ok {
		detail = "the gateway does not admit this request"
	}
	writeRefusalDetail(w, r, pool, refusal, detail)
}

func writeRefusalDetail(w http.ResponseWriter, r *http.Request, pool string, refusal *Refusal, detail string) {
	seconds := retryAfterSeconds(refusal.RetryAfter)
	h := w.Header()
	h.Set("Retry-After", strconv.Itoa(seconds))
	h.Set("Kgate-Refusal", string(refusal.Reason))
	if refusal.Limit > 0 {
		policy := pool
		if refusal.Reason == ReasonClientLimit {
			policy += "/client"
		}
		h.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;qu="concurrent-requests"`, policy, refusal.Limit))
		h.Set("RateLimit", fmt.Sprintf(`"%s";r=0;t=%d`, policy, seconds))
	}
	if refusal.Reason == ReasonDraining {
		h.Set("Connection", "close") // the next request is to go to another gateway
	}
	writeProblem(w, r, problem{
		Status:     refusal.Reason.status(),
		Detail:     detail,
		Pool:       pool,
		Reason:     string(refusal.Reason),
		Position:   refusal.Position,
		RetryAfter: seconds,
	})
}

// writeProblem answers with p, in the form that r accepts.
func writeProblem(w http.ResponseWriter, r *http.Request, p problem) { problems.Write(w, r, p) }

// retryAfterSeconds rounds d up to whole seconds, at least one.
func retryAfterSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
