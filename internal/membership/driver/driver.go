package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// Discovery reports which gateways gossip knows.
type Discovery interface {
	Members() []serfring.Member
	Changed() <-chan struct{}
	SetBoot(boot string) error
}

// Layer carries connections between gateways.
type Layer interface {
	net.Listener
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Config says who this gateway is and how it takes part.
type Config struct {
	Name, Boot, PeerAddr string
	// DataDir keeps the state over restarts; empty: in memory.
	DataDir         string
	BootstrapExpect int
	Witness         bool
	Joining         bool
	Lease           time.Duration
	Discovery       Discovery
	Peers           Layer
	// Stored is told how long each write took; nil: nobody is.
	Stored func(time.Duration)
	Logger *slog.Logger

	files journal.FS
}

// Standing says as whom, and until when, this gateway may have requests in flight.
type Standing struct {
	Node  kmutex.Node
	Until time.Time
}

// Valid reports that requests may be in flight at the given time.
func (s Standing) Valid(now time.Time) bool { return now.Before(s.Until) }

// Errors of a Cluster.
var (
	errClosed = errors.New("membership: closed")
	errStart  = errors.New("membership: start")
)

// Cluster is this gateway's part in the agreement on views. Its methods may be called by any
// number of goroutines.
type Cluster struct {
	config Config
	id     core.ID
	began  time.Time
	core   *core.Core // belongs to loop
	wire   *wire
	disk   *disk
	events queue

	view     atomic.Pointer[views.View]
	standing atomic.Pointer[Standing]
	void     atomic.Bool
	leader   atomic.Uint64
	failed   chan error
	left     chan struct{}
	closing  context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}
	tags    uint64
	waiting map[uint64]chan error
}

// Start takes part in a cluster. It returns without waiting for anybody.
func Start(config Config) (*Cluster, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{
		config: config, began: time.Now(), events: queue{wake: make(chan struct{}, 1)}, failed: make(chan error, 1), left: make(chan struct{}),
		changed: make(chan struct{}), waiting: make(map[uint64]chan error),
	}
	c.closing, c.cancel = context.WithCancel(context.Background())
	stored := core.NewStored(newID(), config.Name)
	if config.DataDir != "" {
		var err error
		if c.disk, err = openDisk(config, stored); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", errStart, err), config.Peers.Close())
		}
	}
	var err error
	c.core, err = core.New(core.Config{
		Stored: stored, Durable: c.disk != nil, Name: config.Name, Boot: config.Boot, Addr: config.PeerAddr,
		Expect: config.BootstrapExpect, Joining: config.Joining, Witness: config.Witness, Lease: config.Lease,
		Wall: time.Now().UnixMilli(), Seed: uint64(newID()),
	}, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errStart, err), config.Peers.Close(), c.disk.close())
	}
	c.id = c.core.ID()
	c.view.Store(c.core.View())
	c.standing.Store(&Standing{})
	c.wire = newWire(c.id, config.Name, config.Peers, config.Lease, c.post)
	c.wg.Go(c.loop)
	c.wg.Go(c.gossip)
	if c.disk != nil {
		c.wg.Go(func() { c.disk.run(c.closing, c.post, c.fail) })
	}
	return c, nil
}

// Close stops taking part, without telling anybody.
func (c *Cluster) Close() error {
	c.cancel()
	err := c.wire.close()
	c.wg.Wait()
	return errors.Join(err, c.disk.close())
}

// now is the process's clock.
func (c *Cluster) now() time.Duration { return time.Since(c.began) }

// queue holds the events that the loop has not taken in. It has no bound: who tells of an event must
// never wait for the loop, which may wait for it. What floods it are peers, which are members.
type queue struct {
	mu     sync.Mutex
	events []core.Event
	wake   chan struct{}
}

// post has the loop take in an event.
func (c *Cluster) post(e core.Event) {
	q := &c.events
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what has happened meanwhile.
func (q *queue) take() []core.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

func (c *Cluster) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var events []core.Event
		select {
		case <-c.closing.Done():
			return
		case <-c.events.wake:
			events = c.events.take()
		case <-timer.C:
			events = []core.Event{core.Woken{}}
		}
		for _, e := range events {
			out := c.core.Step(c.now(), e)
			c.carryOut(out)
			timer.Reset(out.Wake - c.now())
		}
	}
}

// gossip passes on what discovery knows.
func (c *Cluster) gossip() {
	for {
		changed := c.config.Discovery.Changed()
		var known []core.Gateway
		for _, m := range c.config.Discovery.Members() {
			known = append(known, core.Gateway{
				Name: m.Name, Boot: m.Boot, Addr: m.PeerAddr, Expect: m.Expect,
				Alive: m.Status == serfring.StatusAlive, Left: m.Status == serfring.StatusLeft,
			})
		}
		c.post(core.Gossip{Gateways: known})
		select {
		case <-c.closing.Done():
			return
		case <-changed:
		case <-time.After(time.Second):
		}
	}
}

// carryOut does what an event has led to.
func (c *Cluster) carryOut(out core.Effects) {
	for _, l := range out.Log {
		c.config.Logger.LogAttrs(c.closing, l.Level, l.Text, l.Attrs...) //nolint:sloglint // the core's texts are constant
	}
	if len(out.Write) > 0 {
		c.disk.write(out.Write)
	}
	for _, s := range out.Send {
		c.wire.send(s)
	}
	for _, d := range out.Dial {
		c.wire.dial(d)
	}
	if out.Boot != "" {
		if err := c.config.Discovery.SetBoot(out.Boot); err != nil {
			c.config.Logger.Warn("gossip does not carry the new incarnation yet", slog.Any("error", err))
		}
	}
	touched := out.View != nil || out.Standing != nil
	if out.View != nil {
		c.view.Store(out.View)
	}
	if s := out.Standing; s != nil {
		stands := &Standing{Node: s.Node}
		if s.Until > 0 {
			stands.Until = c.began.Add(s.Until)
		}
		c.standing.Store(stands)
		c.void.Store(s.Void)
	}
	if leads := uint64(c.core.Leader()); c.leader.Swap(leads) != leads {
		touched = true
	}
	for _, r := range out.Results {
		c.answer(r)
	}
	if out.Failed != nil {
		c.fail(out.Failed)
	}
	if out.Left {
		close(c.left)
	}
	if touched {
		c.touch()
	}
}

func (c *Cluster) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// touch wakes those that wait for a change.
func (c *Cluster) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Cluster) answer(r core.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if said := c.waiting[r.Tag]; said != nil {
		said <- r.Err
		delete(c.waiting, r.Tag)
	}
}
