package membership

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/kmutex"
)

// Standing says as whom, and until when, this gateway may have requests in flight. The zero value
// means that it may have none.
type Standing struct {
	Node  kmutex.Node
	Until time.Time
}

// Valid reports that requests may be in flight at the given time.
func (s Standing) Valid(now time.Time) bool { return now.Before(s.Until) }

// Cluster is this gateway's part in the agreement on views. Its methods may be called by any
// number of goroutines.
type Cluster struct {
	config  Config
	carrier *Carrier
	disk    *disk
	id      core.ID
	began   time.Time // time 0 of the core, on the clock of now
	events  queue

	mu   sync.Mutex // guards core
	core *core.Core

	view     atomic.Pointer[View]
	standing atomic.Pointer[Standing]
	boot     atomic.Pointer[string]
	void     atomic.Bool
	differs  atomic.Bool

	failed  chan error
	left    chan struct{}
	closing context.Context
	cancel  context.CancelFunc
	closed  func() error
	wg      sync.WaitGroup

	waitMu  sync.Mutex
	changed chan struct{} // closed and replaced by touch
	tags    uint64
	waiting map[uint64]chan error // by tag

	// The loop's.
	kept   map[core.ID]connection // by the process at the other end
	missed time.Duration          // when it was asked who is missed
}

// Failed yields an error when this gateway cannot take part any more: its disk is full, say. It
// follows no views from then on, and others would wait for it, so its process should end.
func (c *Cluster) Failed() <-chan error { return c.failed }

func (c *Cluster) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// View returns the newest view that this gateway knows of.
func (c *Cluster) View() *View { return c.view.Load() }

// Standing returns the present one. It is cheap enough for every admission and every write. It
// lapses by itself: compare Until with the clock.
func (c *Cluster) Standing() Standing { return *c.standing.Load() }

// Changed returns a channel that is closed when the next view is there, when this gateway's
// standing has begun or ended, or when there is another leader or voter. Take it before View and Standing,
// then nothing is missed:
//
//	for {
//		changed := cluster.Changed()
//		use(cluster.View(), cluster.Standing())
//		<-changed
//	}
func (c *Cluster) Changed() <-chan struct{} {
	c.waitMu.Lock()
	defer c.waitMu.Unlock()
	return c.changed
}

// touch wakes those that wait for a change.
func (c *Cluster) touch() {
	c.waitMu.Lock()
	defer c.waitMu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits for a state of a kind.
func (c *Cluster) await(ctx context.Context, ok func() bool) error {
	for {
		changed := c.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), c.Problem())
		case <-c.closing.Done():
			return errClosed
		}
	}
}

// Self returns the Node of this gateway's newest incarnation, if the newest view has it.
func (c *Cluster) Self() (kmutex.Node, bool) {
	m, in := c.View().Named(c.config.Name)
	if !in || m.Boot != *c.boot.Load() {
		return 0, false
	}
	return m.Node, true
}

// Ready waits until this gateway is in the view.
func (c *Cluster) Ready(ctx context.Context) error {
	return c.await(ctx, func() bool { _, in := c.Self(); return in })
}

// Problem returns what keeps this gateway from taking part, or nil.
func (c *Cluster) Problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Problem()
}

// Differs reports that this gateway's state is not what the others have agreed on. It admits nothing
// any more.
func (c *Cluster) Differs() bool { return c.differs.Load() }

// Leader returns the name of the gateway that leads the agreement, if this one knows it.
func (c *Cluster) Leader() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := c.core.Elsewhere()
	if id := c.core.Leader(); id != 0 {
		name = c.core.NameOf(id)
	}
	return name, name != ""
}

// Voting returns the names of the gateways that vote, in ascending order, and whether this one is
// among them.
func (c *Cluster) Voting() (names []string, self bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.core.Voters() {
		names = append(names, c.core.NameOf(id))
		self = self || id == c.id
	}
	slices.Sort(names)
	return names, self
}

func (c *Cluster) slowFrom() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.SlowFrom()
}

// TicketsMark returns what SetTicketsMark has written to DataDir, empty if nothing.
func (c *Cluster) TicketsMark() string { return c.disk.ticketsMark() }

// SetTicketsMark writes the mark of the tickets that the owner keeps in DataDir.
func (c *Cluster) SetTicketsMark(mark string) error { return c.disk.setTicketsMark(mark) }

// answer tells who waits what became of a command.
func (c *Cluster) answer(r core.Result) {
	c.waitMu.Lock()
	defer c.waitMu.Unlock()
	if said := c.waiting[r.Tag]; said != nil {
		said <- r.Err
		delete(c.waiting, r.Tag)
	}
}
