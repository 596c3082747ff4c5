package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
)

// Leave takes this gateway out of the view, hands the lead on if it has it, and
// closes the cluster, also if ctx ends or an error occurs before. The last
// gateway tells its disk: when it starts again, nothing is owed from before.
func (c *Cluster) Leave(ctx context.Context) error {
	c.leaving.Store(true)
	return errors.Join(c.depart(ctx), c.Close())
}

func (c *Cluster) depart(ctx context.Context) error {
	node, in := c.Self()
	if !in {
		return nil
	}
	if len(c.View().Members) == 1 {
		if c.raft.State() != raft.Leader {
			return nil // it was one of several that are leaving, and nobody leads them
		}
		return c.applyHere(command{Remove: &removeCommand{Node: node}})
	}
	if err := c.handOver(ctx); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	if err := c.propose(ctx, command{Remove: &removeCommand{Node: node}}); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	return nil
}

// handOver passes the lead on, if this gateway has it, to one that is alive;
// if that one has no vote yet, it gets one.
func (c *Cluster) handOver(ctx context.Context) error {
	for c.raft.State() == raft.Leader {
		err := c.handOverOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(soon):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-c.closing.Done():
			return ErrClosed
		}
	}
	return nil
}

func (c *Cluster) handOverOnce(ctx context.Context) error {
	c.ops.Lock()
	defer c.ops.Unlock()
	peers := c.config.Discovery.Members()
	view := c.View()
	var heir raft.Server
	for _, s := range c.servers() {
		m, in := view.Named(nameOf(s.ID))
		p, seen := find(peers, nameOf(s.ID))
		fit := in && m.Server == string(s.ID) && seen && p.Status == serfring.StatusAlive && m.Name != c.config.Name
		if fit && (heir.ID == "" || heir.Suffrage != raft.Voter && s.Suffrage == raft.Voter) {
			heir = s
		}
	}
	if heir.ID == "" {
		return fmt.Errorf("%w: nobody alive to hand over to", ErrNoLeader)
	}
	if heir.Suffrage != raft.Voter {
		if !c.caughtUp(peers, heir.ID) {
			return fmt.Errorf("%w: %s has not caught up", ErrNoLeader, heir.ID)
		}
		if err := c.change(step{promote, heir.ID}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.raft.LeadershipTransferToServer(heir.ID, heir.Address).Error(); err != nil {
		return fmt.Errorf("membership: hand over to %s: %w", heir.ID, err)
	}
	return nil
}
