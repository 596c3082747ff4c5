package proxy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// semaphore is an Admitter: a counting semaphore with one FIFO line for all
// pools. It fails the test when a release is missing or comes twice.
type semaphore struct {
	t testing.TB

	mu      sync.Mutex
	k, held int
	maxHeld int
	line    []chan struct{}
	refusal *admission.Refusal // refuse everybody with it
	err     error              // fail with it
	changed chan struct{}      // closed and replaced at every change

	standing atomic.Uint64 // Config.Standing
	serial   int           // of the last fence
	slots    []*semSlot    // all that were ever given
}

func newSemaphore(t testing.TB, k int) *semaphore {
	s := &semaphore{t: t, k: k, changed: make(chan struct{})}
	s.standing.Store(1)
	t.Cleanup(func() { s.await(0, 0) })
	return s
}

func (s *semaphore) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *semaphore) Acquire(ctx context.Context, req admission.Request) (Slot, error) {
	s.mu.Lock()
	if s.refusal != nil || s.err != nil {
		defer s.mu.Unlock()
		if s.refusal != nil {
			return nil, s.refusal
		}
		return nil, s.err
	}
	if s.held < s.k && len(s.line) == 0 {
		defer s.mu.Unlock()
		return s.admitLocked(req.Holder), nil
	}
	turn := make(chan struct{})
	s.line = append(s.line, turn)
	s.notify()
	s.mu.Unlock()

	var timeout <-chan time.Time
	if req.Wait >= 0 {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		timeout = timer.C
	}
	var err error
	select {
	case <-turn:
	case <-timeout:
		err = &admission.Refusal{Reason: admission.Timeout}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-turn: // held was counted by whoever let us in
		return s.slotLocked(req.Holder), nil
	default:
	}
	for i := range s.line {
		if s.line[i] == turn {
			s.line = append(s.line[:i], s.line[i+1:]...)
			break
		}
	}
	s.notify()
	return nil, err
}

func (s *semaphore) admitLocked(holder admission.Holder) *semSlot {
	s.held++
	s.maxHeld = max(s.maxHeld, s.held)
	s.notify()
	return s.slotLocked(holder)
}

func (s *semaphore) slotLocked(holder admission.Holder) *semSlot {
	s.serial++
	sl := &semSlot{sem: s, holder: holder, fence: fmt.Sprintf("p/1/%d", s.serial), entry: admission.GrantInfo{Epoch: 1, Serial: uint64(s.serial)}}
	s.slots = append(s.slots, sl)
	return sl
}

// last returns the slot that was given last.
func (s *semaphore) last() *semSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[len(s.slots)-1]
}

// lapse ends the standing and all slots with it, as the end of a lease does.
func (s *semaphore) lapse() {
	s.standing.Store(0)
	s.mu.Lock()
	slots := slices.Clone(s.slots)
	s.mu.Unlock()
	for _, sl := range slots {
		sl.invalid.Store(true)
	}
	for _, sl := range slots {
		sl.lose()
	}
}

// semSlot is a slot of a semaphore.
type semSlot struct {
	sem     *semaphore
	fence   string
	entry   admission.GrantInfo
	holder  admission.Holder
	invalid atomic.Bool

	// Under sem.mu.
	released, lost bool
}

var _ Slot = (*semSlot)(nil)

func (sl *semSlot) Release() {
	s := sl.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.released {
		s.t.Error("released twice")
		return
	}
	sl.released = true
	s.held--
	if len(s.line) > 0 {
		s.held++
		close(s.line[0])
		s.line = s.line[1:]
	}
	s.notify()
}

func (sl *semSlot) Fence() string                  { return sl.fence }
func (sl *semSlot) Valid() bool                    { return !sl.invalid.Load() }
func (sl *semSlot) GrantInfo() admission.GrantInfo { return sl.entry }

// lose makes the slot invalid and says so.
func (sl *semSlot) lose() {
	sl.invalid.Store(true)
	sl.sem.mu.Lock()
	told := sl.lost || sl.released
	sl.lost = true
	sl.sem.mu.Unlock()
	if !told && sl.holder != nil {
		sl.holder.LoseSlot()
	}
}

// await waits until so many slots are held and so many requests wait.
func (s *semaphore) await(held, waiting int) {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		h, w, changed := s.held, len(s.line), s.changed
		s.mu.Unlock()
		if h == held && w == waiting {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Errorf("%d slots held and %d waiting, want %d and %d", h, w, held, waiting)
			return
		}
	}
}

// now returns how many slots are held.
func (s *semaphore) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}
