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
	return problem{
		Status:     refusal.Reason.Status(),
		Detail:     detail,
		Pool:       pool,
		Reason:     string(refusal.Reason),
		Position:   refusal.Position,
		RetryAfter: seconds,
	}
}

// retryAfterSeconds rounds d up to whole seconds, at least one.
func retryAfterSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
