package membership

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kgate/kgate/internal/membership/raftfile"
)

// An old copy of a data_dir is a good one to whoever reads it: the gateway would vote
// for others that have lost as much, and what was agreed on since would be gone. Only the
// others know better. So a gateway that comes back with a log asks all raft servers that
// it knows how far the log is agreed on, before it votes or stands for the first time. Who
// lacks something of it stands in no election, and votes only for those that have it.
// Raft then brings the old copy up to date, as it does with all that were away.
//
// A majority that has what was agreed on is never held up: one of it has all of it, and
// gets the votes.
//
// A voter that has more can also lead, and brings the others up to date. Gateways that do not vote
// cannot, so they are asked only where a single voter has nobody else to ask.

// rollCall is what a gateway knows from the others about the log, and whether it may lead
// or vote with the log that it has.
type rollCall struct {
	file    *raftfile.File // nil in memory
	closing context.Context
	// over is closed when votes may be given.
	over chan struct{}
	// complete is set once nothing of what was agreed on is missing here.
	complete atomic.Bool

	mu     sync.Mutex
	floor  raftfile.Position // agreed on, as somebody said
	from   string            // who said so
	missed []string          // who has not answered
}

// heard notes how far somebody says that the log is agreed on.
func (r *rollCall) heard(from string, p raftfile.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.floor.Before(p) {
		r.floor, r.from = p, from
	}
}

func (r *rollCall) known() (floor raftfile.Position, from string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.floor, r.from
}

// called reports whether the roll call is over.
func (r *rollCall) called() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// behind returns an error if this gateway's log lacks something that is agreed on.
func (r *rollCall) behind() error {
	if r.file == nil {
		return nil
	}
	if r.complete.Load() {
		return nil
	}
	called := r.called()
	floor, from := r.known()
	if last := r.lastEntry(); last.Before(floor) {
		return fmt.Errorf("%w: its log ends at entry %d (term %d), and %s has entry %d (term %d): it has missed what came after, or an old copy of data_dir was put back",
			errBehind, last.Index, last.Term, from, floor.Index, floor.Term)
	}
	if called {
		r.complete.Store(true) // nobody is asked any more
	}
	return nil
}

// lastEntry returns where the log on disk ends; the newest snapshot counts, too.
func (r *rollCall) lastEntry() raftfile.Position {
	last := r.file.Last()
	if metas, err := r.file.List(); err == nil && len(metas) > 0 {
		if p := (raftfile.Position{Index: metas[0].Index, Term: metas[0].Term}); last.Before(p) {
			return p
		}
	}
	return last
}

// agreed returns how far this gateway knows the log to be agreed on.
func (r *rollCall) agreed() raftfile.Position {
	if r.file == nil {
		return raftfile.Position{}
	}
	return r.file.Committed()
}

// mayStand waits for the roll call, and returns an error if this gateway must not lead.
func (r *rollCall) mayStand() error {
	select {
	case <-r.over:
		return r.behind()
	case <-r.closing.Done():
		return errClosed
	}
}

// mayElect waits for the roll call, and returns an error if a candidate whose log ends at
// last must not lead.
func (r *rollCall) mayElect(last raftfile.Position) error {
	select {
	case <-r.over:
	case <-r.closing.Done():
		return errClosed
	}
	if floor, from := r.known(); last.Before(floor) {
		return fmt.Errorf("%w: the candidate's log ends at entry %d (term %d), and %s has entry %d (term %d)",
			errRPC, last.Index, last.Term, from, floor.Index, floor.Term)
	}
	return nil
}
