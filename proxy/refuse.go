package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
)

// statusClientGone is what the log shows for a client that left before it was
// answered, nginx's "client closed request".
const statusClientGone = 499

// problem is the body of an answer that the gateway gives itself.
type problem = problems.Details

// admit gets the request a slot: that of the ticket it brings, or the next one
// in the pool's line, at most for the pool's or the client's time. A browser may be
// answered with a page instead.
func (ex *exchange) admit(r *http.Request, pool *Pool) (Slot, error) {
	s := ex.snapshot
	if ids, ok := r.Header[ticketHeader]; ok {
		return s.redeem(&ex.ctx, pool.Name, ids)
	}
	if pool.Tickets && prefersTicket(r.Header) {
		return ex.admitOrTicket(r, pool)
	}
	return admitBrowser(&ex.ctx, s, pool, ex, r, func(limit time.Duration) (Slot, error) { return ex.acquire(r, pool, limit) })
}

// acquire waits in the pool's line, no longer than limit.
func (ex *exchange) acquire(r *http.Request, pool *Pool, limit time.Duration) (Slot, error) {
	s := ex.snapshot
	ex.info = admission.RequestInfo{Method: r.Method, Path: r.URL.Path, Remote: s.clientAddr(r)}
	req := ex.lineRequest(pool)
	if pool.TellClients {
		req.Client = s.clientKey(r, pool)
	}
	req.Wait, ex.prefer = queueTimeout(limit, r.Header)
	return s.cfg.Admitter.Acquire(&ex.ctx, req)
}

// refuse answers a request of a pool that was not admitted.
func (ex *exchange) refuse(r *http.Request, err error) {
	if ex.ctx.Err() != nil {
		ex.rec.Outcome = admission.OutcomeClientGone
		ex.answerClientGone()
		return
	}
	ex.writeProblem(r, ex.refused(ex.Header(), err))
}

// answerClientGone ends a request whose client has left. Only a client that has
// closed no more than its sending side reads the answer.
func (ex *exchange) answerClientGone() {
	ex.clientGone = true
	if ex.http1 { // in HTTP/2 it would end the connection for other requests too
		ex.Header().Set("Connection", "close")
	}
	ex.WriteHeader(statusClientGone)
}

// newRefusal returns the body of the answer to a request that was not admitted, and
// fills in its header.
func newRefusal(h http.Header, pool string, refusal *admission.Refusal, detail string) problem {
	seconds := retryAfterSeconds(refusal.RetryAfter)
	h.Set("Retry-After", strconv.Itoa(seconds))
	h.Set("Kgate-Refusal", string(refusal.Reason))
	if refusal.Limit > 0 {
		policy := pool
		if refusal.Reason == admission.ClientLimit {
			policy += "/client"
		}
		h.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;qu="concurrent-requests"`, policy, refusal.Limit))
		h.Set("RateLimit", fmt.Sprintf(`"%s";r=0;t=%d`, policy, seconds))
	}
	if refusal.Reason == admission.Draining {
		h.Set("Connection", "close") // the next request is to go to another gateway
	}
	return problem{
		Status:     refusal.Reason.Status(),
		Detail:     detail,
		Pool:       pool,
		Reason:     string(refusal.Reason),
		Position:   refusal.Position,
		RetryAfter: seconds,
	}
}

// answerProblem says in an answer of the gateway's own what is wrong with the request.
func (ex *exchange) answerProblem(r *http.Request, status int, detail string) {
	ex.writeProblem(r, problem{Status: status, Detail: detail, Pool: ex.rec.Pool})
}

// writeProblem answers with p, in the form that r accepts.
func (ex *exchange) writeProblem(r *http.Request, p problem) {
	p.RequestID = ex.requestID
	if !ex.writeErrorPage(r, p) {
		problems.Write(ex, r, p)
	}
}

// retryAfterSeconds rounds d up to whole seconds, at least one.
func retryAfterSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
