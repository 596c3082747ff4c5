package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/membership"
	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication/disk"
)

// env is what all pools of a gateway share: clocks, links, agreed views, the disk and
// the life of what runs in the background. Pools know it, and not the Gateway.
type env struct {
	cfg      Config // as it began: Pools may have changed since
	now      func() time.Time
	wall     func() time.Time // the time of day, which people may set
	started  time.Time        // the origin of clock
	draining atomic.Bool      // no request may come in
	hurried  atomic.Bool      // none may wait for longer than lastWait
	broken   atomic.Bool      // the slots of this process are lost: see BreakOff
	losses   oncelog.Limit
	disk     ticketDisk
	size     atomic.Int64 // gateways in the view
	begun    lockedSignal // an epoch has begun

	links Links
	views Views

	// ctx ends at Close, and with it what runs in the background.
	ctx     context.Context
	cancel  context.CancelFunc
	closing sync.RWMutex
	wg      sync.WaitGroup
}

// poolEnv is what the parts of one pool share.
type poolEnv struct {
	*env
	name  string
	log   *slog.Logger
	watch PoolObserver
	spans spanLinks // of the tokens that are here; the pool's lock guards them
	// instant is when the request came, or gave its slot back, that is taken in now; zero: none
	// is. It is one for all that follows, as a clock costs more than much of that. The pool's
	// lock guards it.
	instant time.Time
}

// moment is the time of what happens under the pool's lock.
func (e *poolEnv) moment() time.Time {
	if e.instant.IsZero() {
		return e.now()
	}
	return e.instant
}

// over ends instant.
func (e *poolEnv) over() { e.instant = time.Time{} }

// clock is the time as package internal/pool wants it.
func (e *env) clock() time.Duration { return e.now().Sub(e.started) }

// askInterval is how long a gateway waits between two requests for a place in a
// pool's line; see ADR 0010.
func (e *env) askInterval() time.Duration {
	const (
		factor  = 4
		unknown = time.Millisecond // round trip, until one is measured
	)
	rtt := cmp.Or(e.links.MeanRTT(), unknown)
	return factor * time.Duration(e.size.Load()) * rtt / 2
}

// entitled reports whether the incarnation may have requests in flight now.
func (e *env) entitled(self kmutex.Node) bool { return e.entitledAt(self, e.now()) }

func (e *env) entitledAt(self kmutex.Node, now time.Time) bool {
	s := e.views.Standing()
	return self != 0 && s.Node == self && now.Before(s.Until)
}

// during returns a context that ends with ctx, or when holds is no longer true, which
// depends on the views and this gateway's standing in them alone.
func (e *env) during(ctx context.Context, holds func() bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	e.background(func() {
		defer cancel()
		for {
			changed := e.views.Changed()
			if !holds() {
				return
			}
			select {
			case <-changed:
			case <-time.After(e.views.Standing().Until.Sub(e.now())):
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, cancel
}

// background runs do, which Close waits for; not at all once Close has begun. It is for
// callers that hold no pool's lock: Close takes these after it has ended e.ctx, so what
// they begin under one is begun before Close waits.
func (e *env) background(do func()) {
	e.closing.RLock()
	defer e.closing.RUnlock()
	if e.ctx.Err() == nil {
		e.wg.Go(do)
	}
}

// end ends what runs in the background; the caller waits for it.
func (e *env) end() {
	e.closing.Lock()
	defer e.closing.Unlock()
	e.cancel()
}

// The names of the calls.
const (
	ticketsCall = "tickets"
	lineCall    = "line/"   // with the pool
	sharesCall  = "shares/" // with the pool
	fleetCall   = "fleet/"  // with the path, for the fleet handler of [Gateway.Start]
)

// maxAnswer bounds an answer. The longest is a gateway's part of a line, 20 bytes for
// each that waits: this is room for 400,000.
const maxAnswer = 8 << 20

// call asks a member. The answer goes into into.
func (e *env) call(ctx context.Context, m membership.Member, name string, question, into any) error {
	var body []byte
	if question != nil {
		var err error
		if body, err = json.Marshal(question); err != nil {
			return err
		}
	}
	answer, err := e.links.Call(ctx, transport.To{Name: m.Name, Addr: m.PeerAddr}, transport.Question{Name: name, Body: body, Limit: maxAnswer})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", m.Name, name, err)
	}
	return nil
}

// ticketDisk writes tickets to disk, so that they outlive even the loss of all
// gateways at once. What changes while one write is under way goes with the
// next.
type ticketDisk struct {
	none   bool        // there is no data directory
	loaded atomic.Bool // what was on disk has been read, or cannot be
	// store is nil while no pool has tickets, without a data directory, and if
	// that cannot be used.
	store atomic.Pointer[disk.Store]
	kick  chan struct{} // something has changed
}

// state tells what is known of the disk.
func (d *ticketDisk) state() pool.Disk {
	switch {
	case d.none:
		return pool.DiskNone
	case !d.loaded.Load():
		return pool.DiskUnread
	case d.store.Load() == nil:
		return pool.DiskNone
	default:
		return pool.DiskRead
	}
}

// changed schedules a write.
func (d *ticketDisk) changed() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}
