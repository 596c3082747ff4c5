package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
		return c.proposer.applyHere(command{Remove: &removeCommand{Node: node}})
	}
	if err := c.proposer.handOver(ctx); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	if err := c.proposer.propose(ctx, command{Remove: &removeCommand{Node: node}}); err != nil {
		return fmt.Errorf("membership: leave: %w", err)
	}
	return nil
}

// handOver passes the lead on, if this gateway has it, to one that is alive;
// if that one has no vote yet, it gets one.
func (p *proposer) handOver(ctx context.Context) error {
	for p.raft.State() == raft.Leader {
		err := p.handOverOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(soon):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-p.closing.Done():
			return errClosed
		}
	}
	return nil
}

func (p *proposer) handOverOnce(ctx context.Context) error {
	p.ops.Lock()
	defer p.ops.Unlock()
	peers := p.config.Discovery.Members()
	heir := p.nextLeader(peers)
	if heir.ID == "" {
		return fmt.Errorf("%w: nobody alive to hand over to", errNoLeader)
	}
	if heir.Suffrage != raft.Voter {
		if !p.peers.caughtUp(peers, heir.ID) {
			return fmt.Errorf("%w: %s has not caught up", errNoLeader, heir.ID)
		}
		if err := p.change(step{promote, heir.ID}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.leaders.noteHeir(string(heir.ID))
	if err := p.raft.LeadershipTransferToServer(heir.ID, heir.Address).Error(); err != nil {
		return fmt.Errorf("membership: hand over to %s: %w", heir.ID, err)
	}
	return nil
}

// nextLeader returns the server to hand the lead over to: any that is alive, rather
// one that votes, and of these rather a member. None has an empty ID. It is not always
// the same, since one that others do not get through to hands it over in turn.
func (p *proposer) nextLeader(peers []serfring.Member) raft.Server {
	view, servers := p.View(), slices.Clone(p.servers())
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	var best raft.Server
	most := 0
	for _, s := range servers {
		name := nameOf(s.ID)
		peer, seen := find(peers, name)
		if !seen || peer.Status != serfring.StatusAlive || name == p.config.Name {
			continue
		}
		m, in := view.Named(name)
		rank := 0
		if in && m.Server == string(s.ID) {
			rank++
		}
		if s.Suffrage == raft.Voter && (!in || rank == 1) {
			rank += 2
		}
		if rank > most {
			best, most = s, rank
		}
	}
	return best
}
