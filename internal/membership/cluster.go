package membership

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
)

// Start takes part in a cluster: it goes on with the state in DataDir, starts a cluster as
// BootstrapExpect says, or waits to be let in. It returns without waiting for any of that; see
// [Cluster.Ready]. The context bounds only Start itself. Close ends everything that Start began.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if err := errors.Join(ctx.Err(), config.Validate()); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	c := &Cluster{
		config: config, carrier: config.Carrier, began: bootNow(), events: queue{wake: make(chan struct{}, 1)},
		failed: make(chan error, 1), left: make(chan struct{}), changed: make(chan struct{}), waiting: make(map[uint64]chan error),
		kept: make(map[core.ID]connection),
	}
	c.closing, c.cancel = context.WithCancel(context.Background())
	c.closed = sync.OnceValue(c.shutdown)
	stored := core.NewStored(newID(), config.Name)
	var err error
	if c.disk, err = openDisk(config, stored, c.slowFrom); err != nil {
		return nil, err
	}
	c.core, err = core.New(core.Config{
		Stored: stored, Durable: config.DataDir != "", Name: config.Name, Boot: config.Boot, Addr: config.PeerAddr,
		Expect: config.BootstrapExpect, Joining: config.Joining, Witness: config.Witness, Lease: config.Lease, SwapAfter: config.swapAfter,
		Wall: time.Now().UnixMilli(), Tokens: config.AdminTokens, Seed: uint64(newID()),
	}, 0)
	if err != nil {
		return nil, errors.Join(dirError(config.DataDir, err), c.disk.close())
	}
	c.id = c.core.ID()
	c.view.Store(c.core.View())
	c.standing.Store(&Standing{})
	c.boot.Store(&config.Boot)
	c.carrier.begin(c.id, config, c.events.put)
	c.wg.Go(c.loop)
	c.wg.Go(c.listen)
	c.wg.Go(func() { c.disk.run(c.closing, c.post, c.fail) })
	return c, nil
}

// newID returns a random one.
func newID() core.ID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return core.ID(binary.BigEndian.Uint64(b[:])>>1 | 1)
}

// shutdown undoes Start.
func (c *Cluster) shutdown() error {
	c.cancel()
	c.carrier.end()
	c.wg.Wait()
	for _, k := range c.kept {
		if k.release != nil {
			k.release()
		}
	}
	return c.disk.close()
}

// Close stops taking part, without telling anybody: to the others this gateway is lost. It returns
// when everything has ended.
func (c *Cluster) Close() error { return c.closed() }

// Leave takes this gateway out of the view, hands the lead on if it has it, and closes the
// cluster, also if ctx ends before. The last gateway tells its disk: when it starts again, nothing is
// owed from before.
func (c *Cluster) Leave(ctx context.Context) error {
	c.post(core.Leave{})
	var err error
	select {
	case <-c.left:
	case <-ctx.Done():
		err = fmt.Errorf("leave: %w", ctx.Err())
	case <-c.closing.Done():
		err = errClosed
	}
	return errors.Join(err, c.Close())
}

// Rejoin lets a gateway come back whose incarnation was lost or whose lease has lapsed. The caller
// vouches that nothing which the incarnation had is in flight any more: every connection to an
// upstream is closed. It does nothing while the incarnation may still get a standing, so it may be
// called at every change.
func (c *Cluster) Rejoin() {
	if c.void.Load() {
		c.post(core.Rejoin{})
	}
}

// agree has a command agreed on, and waits until this gateway's view shows it. It keeps trying until
// ctx ends.
func (c *Cluster) agree(ctx context.Context, what string, cmd views.Command) error {
	said := make(chan error, 1)
	c.waitMu.Lock()
	c.tags++
	tag := c.tags
	c.waiting[tag] = said
	c.waitMu.Unlock()
	c.post(core.Propose{Tag: tag, Command: cmd})
	var err error
	select {
	case err = <-said:
	case <-ctx.Done():
		c.answer(core.Result{Tag: tag})
		c.post(core.Forget{Tag: tag})
		err = errors.Join(ctx.Err(), c.Problem())
	case <-c.closing.Done():
		return errClosed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
