package admin

import "context"

// Control changes the cluster. The gateway's process implements it.
type Control interface {
	// SetK changes the k of a pool in the whole cluster. With a was other than 0
	// it fails with ErrConflict unless k is that now. It fails with ErrUnknown
	// for the pool, with ErrInvalid for a k that cannot be, and with
	// ErrUnavailable without a majority.
	SetK(ctx context.Context, pool string, k, was int) error
	// Drain begins to take this gateway out of service: it refuses new requests,
	// finishes those in flight, and stays in the cluster.
	Drain(ctx context.Context) error
	// Leave begins to end this gateway as SIGTERM does.
	Leave(ctx context.Context) error
	// Suspend takes another gateway out by force: one that is lost for good or
	// must not go on. It fails with ErrUnknown for its name.
	Suspend(ctx context.Context, member string) error
}
