package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

// DefinePool makes sure that there is a pool of the given name: it returns nil
// when this gateway's view has one. The first definition wins, so K, Binding,
// Reclaim (default admission.ReclaimLease) and HoldMax of the view's pool may be others;
// the other fields of the argument do not count. It waits until this gateway is
// in the view, and keeps trying until ctx ends.
func (c *Cluster) DefinePool(ctx context.Context, p Pool) error {
	define := defineCommand{Name: p.Name, K: p.K, Binding: p.Binding, Reclaim: cmp.Or(p.Reclaim, admission.ReclaimLease), HoldMax: p.HoldMax}
	if err := define.check(); err != nil {
		return err
	}
	known := func(v *View) bool { _, ok := v.Pool(p.Name); return ok }
	// A pool without members would have no home.
	if err := c.Ready(ctx); err != nil {
		return fmt.Errorf("membership: define pool %q: %w", p.Name, err)
	}
	if known(c.View()) {
		return nil
	}
	if err := c.propose(ctx, command{Define: &define}); err != nil {
		return fmt.Errorf("membership: define pool %q: %w", p.Name, err)
	}
	return c.await(ctx, known)
}

// SetK changes the number of tokens of a pool in a new epoch and returns when
// this gateway's view has it. With was other than 0 it fails with ErrConflict
// unless the agreed number is was, or k already. It keeps trying until ctx ends.
func (c *Cluster) SetK(ctx context.Context, pool string, k, was int) error {
	err := checkK(k)
	if err == nil && was != 0 {
		err = checkK(was)
	}
	if err != nil {
		return err
	}
	before := c.View().Number
	if err := c.propose(ctx, command{SetK: &setKCommand{Name: pool, K: k, Was: was}}); err != nil {
		return fmt.Errorf("membership: set k of pool %q: %w", pool, err)
	}
	return c.await(ctx, func(v *View) bool {
		// Somebody else may have set another k right behind.
		have, ok := v.Pool(pool)
		return !ok || have.K == k || v.Number > before
	})
}

// Recover begins a new epoch of a pool if it still is in the given one, and
// returns when this gateway's view has a later one. Spread says that the epoch is only
// to spread the free tokens. It keeps trying until ctx ends.
func (c *Cluster) Recover(ctx context.Context, pool string, epoch uint64, spread bool) error {
	if err := c.propose(ctx, command{Recover: &recoverCommand{Pool: pool, Epoch: epoch, Spread: spread}}); err != nil {
		return fmt.Errorf("membership: recover pool %q: %w", pool, err)
	}
	return c.await(ctx, func(v *View) bool {
		have, ok := v.Pool(pool)
		return !ok || have.Epoch > epoch
	})
}

// UseTickets notes for good that the pool gives out tickets, and returns when
// this gateway's view says so. It keeps trying until ctx ends.
func (c *Cluster) UseTickets(ctx context.Context, pool string) error {
	said := func(v *View) bool {
		have, ok := v.Pool(pool)
		return ok && have.Tickets > 0
	}
	if said(c.View()) {
		return nil
	}
	if err := c.propose(ctx, command{UseTickets: &useTicketsCommand{Pool: pool}}); err != nil {
		return fmt.Errorf("membership: use tickets in pool %q: %w", pool, err)
	}
	return c.await(ctx, said)
}

// Suspend takes the named gateway out of the view as one whose lease may still
// run, and returns when this gateway's view has it. If it is alive it comes back
// as another incarnation. It keeps trying until ctx ends.
func (c *Cluster) Suspend(ctx context.Context, name string) error {
	m, in := c.View().Named(name)
	if !in {
		return fmt.Errorf("%w: there is no gateway %q in the view", ErrCommand, name)
	}
	suspend := suspendCommand{Nodes: []kmutex.Node{m.Node}, Reasons: []string{cutReason("an operator took it out, at " + c.config.Name)}}
	if err := c.propose(ctx, command{Suspend: &suspend}); err != nil {
		return fmt.Errorf("membership: suspend %s: %w", name, err)
	}
	return c.await(ctx, func(v *View) bool { _, still := v.Member(m.Node); return !still })
}

// propose has the leader commit a command, over changes of leadership, until
// ctx ends. A command whose answer is lost is proposed again.
func (c *Cluster) propose(ctx context.Context, cmd command) error {
	data, err := encodeCommand(cmd)
	if err != nil {
		return err
	}
	pause := 10 * time.Millisecond
	for {
		err := c.proposeOnce(ctx, cmd, data)
		if err == nil || errors.Is(err, ErrCommand) || errors.Is(err, ErrConflict) || errors.Is(err, errNewer) {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 250*time.Millisecond)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err, c.Problem())
		case <-c.closing.Done():
			return errClosed
		}
	}
}

func (c *Cluster) proposeOnce(ctx context.Context, cmd command, data []byte) error {
	_, leader := c.raft.LeaderWithID()
	switch {
	case leader == "":
		return errNoLeader
	case string(leader) == c.storage.meta.Server && c.leaving.Load() && cmd.Remove != nil:
		// Handed over, but not noticed yet; or the lead came back.
		return errors.Join(errNoLeader, c.handOver(ctx))
	case string(leader) == c.storage.meta.Server:
		return c.applyHere(cmd)
	}
	addr, ok := c.addressOf(leader)
	if !ok {
		return errNoLeader
	}
	return c.ask(ctx, string(leader), addr, data)
}

// applyHere commits a command as the leader. What a removed gateway had among
// the raft servers is taken away before it learns of it: it closes then, and a
// voter that has closed still counts.
func (c *Cluster) applyHere(cmd command) error {
	data, err := encodeCommand(cmd)
	if err != nil {
		return err
	}
	var gone Member
	if cmd.Remove != nil {
		gone, _ = c.View().Member(cmd.Remove.Node)
	}
	began := time.Now()
	future := c.raft.Apply(data, c.config.CallTimeout)
	if err := future.Error(); err != nil {
		return fmt.Errorf("membership: commit: %w", err)
	}
	c.config.Committed(time.Since(began))
	if err, failed := future.Response().(error); failed {
		return err
	}
	// The others learn with the next entry that this one is committed: without it
	// they would only after CommitTimeout.
	_ = c.raft.Barrier(c.config.CallTimeout)
	if gone.Server != "" && gone.Server != c.storage.meta.Server {
		c.ops.Lock()
		defer c.ops.Unlock()
		if err := c.change(step{do: remove, server: raft.ServerID(gone.Server)}); err != nil {
			c.config.Logger.Debug("left to the leader's loop", slog.String("server", gone.Server), slog.Any("error", err))
		}
	}
	return nil
}
