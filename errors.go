package kgate

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/hostaddr"
	"github.com/kgate/kgate/proxy"
)

// Why a node does not admit a request: the Reason of a *[RefusedError], which wraps it. ErrClosed
// stands alone.
var (
	// ErrQueueFull: as many wait at this node as the pool's QueueLimit allows.
	ErrQueueFull error = admission.QueueFull
	// ErrClientLimit: the client has as many requests here as it may.
	ErrClientLimit error = admission.ClientLimit
	// ErrBusy: no slot was free for TryAcquire.
	ErrBusy error = admission.Timeout
	// ErrDraining: the node is being taken out of service.
	ErrDraining error = admission.Draining
	// ErrIsolated: the node is not part of the cluster (yet), or has lost its lease. The
	// error's text says what is missing. Acquire waits in place of that.
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

// For callers whom a panic far below would tell nothing.
var (
	errNilContext = errors.New("kgate: nil context: pass context.Background() if there is no other")
	errNotStarted = errors.New("kgate: this Node was not started: take the one that Start returns")
	errNoTicket   = errors.New("kgate: this Ticket has no ID: take the one that RequestTicket or Node.Ticket returns")
)

// RefusedError is the error of a request that the node does not admit.
type RefusedError struct {
	Pool string // empty: of a call about a ticket
	// Reason is ErrQueueFull, ErrClientLimit, ErrBusy, ErrDraining, ErrIsolated, ErrCancelled or
	// ErrUnknownPool.
	Reason error
	// RetryAfter is when it may be worthwhile to try again; 0: not known.
	RetryAfter time.Duration

	text string
}

func (r *RefusedError) Error() string {
	if r.Pool == "" {
		return "kgate: " + r.text
	}
	return fmt.Sprintf("kgate: pool %q: %s", r.Pool, r.text)
}

// Unwrap returns the Reason.
func (r *RefusedError) Unwrap() error { return r.Reason }

// ConfigError is what is wrong with a field of a [Config]. The error of [Start] wraps one for
// each: errors.As finds the first.
type ConfigError struct {
	// Field as Go writes it, such as Pools[0].K or Peers.Listen.
	Field string
	// Problem says what is wrong, and what to set.
	Problem string
}

func (e *ConfigError) Error() string { return "kgate: Config." + e.Field + ": " + e.Problem }

// insideError is an error of a package inside, as this package tells it.
type insideError struct{ error }

// outside returns err as this package's own error; nil if err is nil.
func outside(err error) error {
	if own := (*ConfigError)(nil); err == nil || errors.As(err, &own) {
		return err
	}
	return insideError{err}
}

func (e insideError) Error() string {
	return "kgate: " + strings.TrimPrefix(e.error.Error(), "kgate: ") + hostaddr.Advice(e.error)
}

// Unwrap returns the error with all that it wraps.
func (e insideError) Unwrap() error { return e.error }
