package proxy

import (
	"fmt"
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
