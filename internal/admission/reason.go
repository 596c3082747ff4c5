package admission

import (
	"errors"
	"net/http"
	"time"
)

// Reason says why a request is refused. It is an error, and its text is the value
// of the header Kgate-Refusal.
type Reason string

// The reasons.
const (
	// QueueFull: as many requests wait at this gateway as the pool's limit allows.
	QueueFull Reason = "queue-full"
	// Timeout: no slot became free in the time the request could wait.
	Timeout Reason = "timeout"
	// Draining: the gateway is being taken out of service.
	Draining Reason = "draining"
	// Isolated: the gateway is not part of the cluster, or has lost its lease.
	Isolated Reason = "isolated"
	// ClientLimit: the client has as many requests or tickets here as it may.
	ClientLimit Reason = "client-limit"
	// Cancelled: an operator took the request out of the line.
	Cancelled Reason = "cancelled"
	// UpstreamDown: no upstream of the pool is available.
	UpstreamDown Reason = "upstream-down"
)

// Why a slot that was granted may be used no longer.
var (
	// ErrLost: the gateway has lost its lease, or aborts its requests to stop.
	ErrLost = errors.New("kgate: the slot may be used no longer: it was released, or the gateway has lost its lease or stops")
	// ErrHoldMax: the slot was held for as long as its pool allows.
	ErrHoldMax = errors.New("kgate: the slot was held for as long as its pool allows")
)

// row holds the consequences of a reason.
type row struct {
	reason  Reason
	outcome Outcome
	status  int  // of the answer
	waits   bool // a request may wait before it is refused for this reason
	detail  string
}

var reasons = []row{
	{QueueFull, "queue_full", http.StatusServiceUnavailable, false, "the line of this pool is full"},
	{Timeout, "timeout", http.StatusServiceUnavailable, true, "no slot became free in time"},
	{Draining, "draining", http.StatusServiceUnavailable, true, "this gateway is being taken out of service"},
	{Isolated, "isolated", http.StatusServiceUnavailable, true, "this gateway is not in touch with the others, or not yet, and may not admit requests"},
	{ClientLimit, "client_limit", http.StatusTooManyRequests, false, "this client has as many requests or tickets here as it may"},
	{Cancelled, "cancelled", http.StatusServiceUnavailable, true, "an operator has taken this request out of the line"},
	{UpstreamDown, "upstream_down", http.StatusServiceUnavailable, false, "no upstream that this request may use is available here: each fails its health check, or SRV records name none"},
}

func (r Reason) row() row {
	for _, known := range reasons {
		if known.reason == r {
			return known
		}
	}
	return row{r, Isolated.Outcome(), http.StatusServiceUnavailable, false, "the gateway does not admit this request"}
}

func (r Reason) Error() string { return "kgate: " + r.Detail() }

// Detail explains r to the client.
func (r Reason) Detail() string { return r.row().detail }

// Status returns the HTTP status of the answer.
func (r Reason) Status() int { return r.row().status }

// Outcome returns the outcome of a request that is refused for r.
func (r Reason) Outcome() Outcome { return r.row().outcome }

// Refusal is the error of a request that is not admitted. It wraps its Reason, so
// errors.Is(err, admission.QueueFull) works.
type Refusal struct {
	Reason Reason
	// RetryAfter is the time after which a retry may succeed; 0: not known.
	RetryAfter time.Duration
	// Limit that was reached: the client's own for ClientLimit, else the pool's k; 0
	// if it is not known.
	Limit int
	// Position is the request's place among the requests that waited at this gateway when it
	// arrived, from 1; 0 if it did not wait.
	Position int
}

func (r *Refusal) Error() string { return r.Reason.Error() }

// Unwrap returns the Reason.
func (r *Refusal) Unwrap() error { return r.Reason }
