package kgate

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/proxy"
)

// Errors of [Node.Acquire], all but ErrClosed wrapped by a *[Refused].
var (
	// ErrQueueFull: as many wait at this node as the pool's QueueLimit allows.
	ErrQueueFull error = admission.QueueFull
	// ErrClientLimit: the client has as many requests here as it may.
	ErrClientLimit error = admission.ClientLimit
	// ErrDraining: the node is being taken out of service.
	ErrDraining error = admission.Draining
	// ErrIsolated: the node is not part of the cluster (yet), or has lost its lease. The
	// text of the *Refused says what is missing.
	ErrIsolated error = admission.Isolated
	// ErrCancelled: an operator took the request out of the line.
	ErrCancelled error = admission.Cancelled
	// ErrUnknownPool: the cluster has no pool of this name.
	ErrUnknownPool = admission.ErrUnknownPool
	// ErrClosed: the node has been closed. All methods that can fail return it from then
	// on, except Close and Drain.
	ErrClosed = errors.New("kgate: the node is closed")
)

// Why a context of [Slot.Context] or [Node.Middleware] has ended, as context.Cause returns
// it.
var (
	// ErrLost: the slot may be used no longer. The node has lost its lease, or stops.
	// [Node.Transport] says so of a released slot, too.
	ErrLost = admission.ErrLost
	// ErrHoldMax: the slot was held for as long as the pool's HoldMax allows.
	ErrHoldMax = admission.ErrHoldMax
)

// ErrSlotInUse is what [Node.Transport] returns for a second request while another one uses
// the slot: read the answer of that to its end, or close it, or acquire another slot.
var ErrSlotInUse = proxy.ErrSlotInUse

// errNilContext is for callers whom a panic far below would tell nothing.
var errNilContext = errors.New("kgate: nil context: pass context.Background() if there is no other")

// Refused is the error of a request that the node does not admit.
type Refused struct {
	Pool string
	// RetryAfter is when it may be worthwhile to try again; 0: not known.
	RetryAfter time.Duration

	reason error
	text   string
}

func (r *Refused) Error() string {
	if r.Pool == "" { // of a call about a ticket
		return "kgate: " + r.text
	}
	return fmt.Sprintf("kgate: pool %q: %s", r.Pool, r.text)
}

// Unwrap returns the reason: ErrQueueFull, ErrClientLimit, ErrDraining, ErrIsolated,
// ErrCancelled or ErrUnknownPool.
func (r *Refused) Unwrap() error { return r.reason }

// insideError is an error of a package inside, as this package tells it.
type insideError struct{ error }

// inside returns err as this package's own error; nil if err is nil.
func inside(err error) error {
	if err == nil {
		return nil
	}
	return insideError{err}
}

func (e insideError) Error() string {
	text := e.error.Error()
	return "kgate: " + withoutPackages(text) + hostaddr.Advice(text)
}

// Unwrap returns the error with all that it wraps.
func (e insideError) Unwrap() error { return e.error }

// packages are the names with which texts of errors begin.
var packages = regexp.MustCompile(`(?m)(^|: )(?:(?:admission|clusterkey|gateway|kgate|membership|proxy|serfring|transport): )+`)

// withoutPackages returns the text of an error without the names of packages: they tell
// a program nothing that imports only this one.
func withoutPackages(text string) string { return packages.ReplaceAllString(text, "$1") }
