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
			return errClosed
		}
	}
	return nil
}

func (c *Cluster) handOverOnce(ctx context.Context) error {
	c.ops.Lock()
	defer c.ops.Unlock()
	peers := c.config.Discovery.Members()
	heir := c.nextLeader(peers)
	if heir.ID == "" {
		return fmt.Errorf("%w: nobody alive to hand over to", errNoLeader)
	}
	if heir.Suffrage != raft.Voter {
		if !c.caughtUp(peers, heir.ID) {
			return fmt.Errorf("%w: %s has not caught up", errNoLeader, heir.ID)
		}
		if err := c.change(step{promote, heir.ID}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.noteHeir(string(heir.ID))
	if err := c.raft.LeadershipTransferToServer(heir.ID, heir.Address).Error(); err != nil {
		return fmt.Errorf("membership: hand over to %s: %w", heir.ID, err)
	}
	return nil
}

// handsOver are the servers that this gateway has told in a term to take over the lead.
// Raft stops waiting for one that is slow, but that one still calls its election: so
// voters may elect it as long as the term lasts.
type handsOver struct {
	term uint64
	to   []string
}

// noteHeir adds a server to handsOver. The caller holds ops.
func (c *Cluster) noteHeir(server string) {
	now := handsOver{term: c.raft.CurrentTerm(), to: []string{server}}
	if h := c.handsOver.Load(); h != nil && h.term == now.term {
		if slices.Contains(h.to, server) {
			return
		}
		now.to = append(slices.Clone(h.to), server)
	}
	c.handsOver.Store(&now)
}

// nextLeader returns the server to hand the lead over to: any that is alive, rather
// one that votes, of these rather a member, and of these rather one that serves. None has an empty ID. It is not always
// the same, since one that others do not get through to hands it over in turn.
func (c *Cluster) nextLeader(peers []serfring.Member) raft.Server {
	view, servers := c.View(), slices.Clone(c.servers())
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	var best raft.Server
	most := 0
	for _, s := range servers {
		name := nameOf(s.ID)
		p, seen := find(peers, name)
		if !seen || p.Status != serfring.StatusAlive || name == c.config.Name {
			continue
		}
		m, in := view.Named(name)
		rank := 0
		if in && m.Server == string(s.ID) {
			rank += 2
		}
		if s.Suffrage == raft.Voter && (!in || rank == 2) {
			rank += 4
		}
		if !m.Witness {
			rank++
		}
		if rank > most {
			best, most = s, rank
		}
	}
	return best
}
