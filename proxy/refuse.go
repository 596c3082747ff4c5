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

// writeRefusal answers a request that was not admitted.
func writeRefusal(w http.ResponseWriter, r *http.Request, pool string, refusal *admission.Refusal) {
	writeRefusalDetail(w, r, pool, refusal, refusal.Reason.Detail())
}

func writeRefusalDetail(w http.ResponseWriter, r *http.Request, pool string, refusal *admission.Refusal, detail string) {
	seconds := retryAfterSeconds(refusal.RetryAfter)
	h := w.Header()
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
	writeProblem(w, r, problem{
		Status:     refusal.Reason.Status(),
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
