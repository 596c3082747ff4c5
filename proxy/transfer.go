package proxy

import "github.com/kgate/kgate/internal/pace"

// PacedSlot is a Slot of a pool whose gateways may share a rate.
type PacedSlot interface {
	// Pacers returns what paces the bytes to the client and to the upstream.
	Pacers() (down, up *pace.Pacer)
}

// transfer is one direction of a request, in which bytes move no faster than its pool
// lets them. All bytes of bodies, and of connections that are no requests, are asked for
// here before they are read. The zero value has no rate.
type transfer struct {
	ctx    pace.Done
	shared pace.Flow  // of the gateway's share
	own    *pace.Flow // of the request alone
}

// begin sets the pace. The rate of the request alone is 0 if there is none.
func (t *transfer) begin(ctx pace.Done, shared *pace.Pacer, own int64) {
	t.ctx = ctx
	t.shared.Begin(shared)
	if own > 0 {
		p := new(pace.Pacer)
		p.Set(1, float64(own))
		t.own = new(pace.Flow)
		t.own.Begin(p)
	}
}

// Rate implements upstream.Paced.
func (t *transfer) Rate() int64 { return t.shared.Rate() }

// take waits until some of want bytes may move, and returns how many.
func (t *transfer) take(want int) (int, error) {
	n, err := t.own.Take(t.ctx, want)
	if err != nil {
		return 0, err
	}
	m, err := t.shared.Take(t.ctx, n)
	t.own.Return(n - m)
	return m, err
}

// unused gives back what was taken and has not moved.
func (t *transfer) unused(n int) {
	t.own.Return(n)
	t.shared.Return(n)
}

// stop ends it: take fails from now on, also a take that waits.
func (t *transfer) stop() {
	t.own.Stop()
	t.shared.Stop()
}
