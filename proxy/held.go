package proxy

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSlotInUse is returned by Enter.
var ErrSlotInUse = errors.New("kgate: another request uses the slot: read its answer to the end, or close it, or acquire another slot")

// Held is a slot that a program holds, by Middleware or by itself. All that uses the slot
// ends with it.
type Held struct {
	Slot
	// Wait is how long the request waited for it.
	Wait time.Duration

	ending sync.Once
	mu     sync.Mutex
	lost   bool
	told   chan struct{} // closed when it is lost; nil: nobody has asked
	ended  error         // why; nil: it has not
	inUse  bool          // by a request
	users  map[*func(error)]struct{}
}

// Lost returns a channel that is closed when the slot may be used no longer.
func (h *Held) Lost() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told == nil {
		h.told = make(chan struct{})
		if h.lost {
			close(h.told)
		}
	}
	return h.told
}

// IsLost reports whether the slot is lost.
func (h *Held) IsLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// Lose notes that the slot is lost, once, and ends what uses it, without waiting for that.
func (h *Held) Lose(why error) {
	h.mu.Lock()
	h.lost = true
	if h.told != nil {
		close(h.told)
	}
	h.mu.Unlock()
	go h.End(why)
}

// Attach has end called, with the reason, when the slot is lost, held for too long or
// released: at once if that has happened. Nobody else has a slot that is released before end
// has returned. The function that Attach returns undoes it.
func (h *Held) Attach(end func(why error)) (detach func()) {
	h.mu.Lock()
	why := h.ended
	if why == nil {
		detach = h.attach(end)
	}
	h.mu.Unlock()
	if why != nil {
		end(why)
		return func() {}
	}
	return detach
}

// attach is Attach under the lock.
func (h *Held) attach(end func(error)) (detach func()) {
	if h.users == nil {
		h.users = make(map[*func(error)]struct{})
	}
	h.users[&end] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.users, &end)
	}
}

// Enter is Attach for a request to a server, of which a slot has one at a time. If it returns
// an error nothing may be sent.
func (h *Held) Enter(end func(why error)) (leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended != nil:
		return nil, h.ended
	case h.inUse:
		return nil, ErrSlotInUse
	}
	h.inUse = true
	detach := h.attach(end)
	return sync.OnceFunc(func() {
		detach()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.inUse = false
	}), nil
}

// End ends what uses the slot, and returns when all of it has ended: within some seconds,
// where a server does not answer. Whoever releases the slot calls it first.
func (h *Held) End(why error) {
	h.ending.Do(func() {
		h.mu.Lock()
		users := h.users
		h.ended, h.users = why, nil
		h.mu.Unlock()
		if len(users) == 0 {
			return
		}
		var all sync.WaitGroup
		for end := range users {
			all.Go(func() { (*end)(why) })
		}
		all.Wait()
	})
}

type heldKey struct{}

// HeldIn returns the slot that a request's context was given, nil if there is none.
func HeldIn(ctx context.Context) *Held {
	held, _ := ctx.Value(heldKey{}).(*Held)
	return held
}

// WithHeld returns a context in which HeldIn finds held.
func WithHeld(ctx context.Context, held *Held) context.Context {
	return context.WithValue(ctx, heldKey{}, held)
}
