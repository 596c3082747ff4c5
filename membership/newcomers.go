package membership

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
)

// attempts remembers which gateways did not answer, so that one that cannot
// be reached does not hold up the others.
type attempts map[string]attempt

type attempt struct {
	boot string
	next time.Time
	wait time.Duration
}

func (a attempts) due(p serfring.Member, now time.Time) bool {
	last, ok := a[p.Name]
	return !ok || last.boot != p.Boot || !now.Before(last.next)
}

func (a attempts) failed(p serfring.Member, now time.Time) {
	wait := 200 * time.Millisecond
	if last := a[p.Name]; last.boot == p.Boot {
		wait = min(2*max(last.wait, wait/2), 5*time.Second)
	}
	a[p.Name] = attempt{p.Boot, now.Add(wait), wait}
}

// strangers returns the gateways that are alive and not, or not as they are,
// in the view or in raft's configuration.
func (c *Cluster) strangers(l *loop, peers []serfring.Member, now time.Time) []serfring.Member {
	view := c.View()
	there := make(map[raft.ServerID]bool)
	for _, s := range c.servers() {
		there[s.ID] = true
	}
	var strangers []serfring.Member
	for _, p := range alive(peers) {
		m, in := view.Named(p.Name)
		settled := view.lostBoot(p.Name, p.Boot) || in && m.Boot == p.Boot && m.PeerAddr == p.PeerAddr && there[raft.ServerID(m.Server)]
		if !settled && l.failed.due(p, now) {
			strangers = append(strangers, p)
		}
	}
	return strangers
}

// welcomes judges what a gateway said about itself. Gossip may be old: what
// counts is what the gateway says.
func (c *Cluster) welcomes(p serfring.Member, id identity) bool {
	if id.Leaving || id.Founding || id.Boot != p.Boot || id.Server == "" || nameOf(raft.ServerID(id.Server)) != p.Name {
		return false
	}
	if own := c.clusterID(); id.Cluster != "" && id.Cluster != own {
		if c.once.First("foreign " + p.Name) {
			c.config.Logger.Warn("a gateway of another cluster is not let in", slog.String("name", p.Name),
				slog.String("peer_address", p.PeerAddr), slog.String("cluster", id.Cluster), slog.String("own_cluster", own),
				slog.String("hint", "to let it join, stop it and move its data_dir away; to keep it apart, take it off the join list"))
		}
		return false
	}
	return true
}

// fit reports that a gateway which wants to be let in reaches all members: one
// that does not would soon be suspended again.
func (c *Cluster) fit(p serfring.Member) bool {
	if m, in := c.View().Named(p.Name); in && m.Boot == p.Boot {
		return true // only its address is another
	}
	if !c.penance.over(p.Name, time.Now()) {
		return false
	}
	missing, ok := c.reachesAll(p)
	if missing != "" && c.silent.lasts("reach "+p.Name) && c.once.First("reach "+p.Name) {
		c.config.Logger.Warn("a gateway is not let in because it does not reach a member",
			slog.String("name", p.Name), slog.String("member", missing),
			slog.String("hint", "every gateway must reach the peer port of every other"))
	}
	if ok {
		c.silent.over("reach " + p.Name)
	}
	return ok
}

// letIn makes a gateway a raft server without a vote, if it is none yet, and
// then a member. The address of one that returned elsewhere is not corrected
// in raft's configuration: ServerAddr knows it from gossip.
func (c *Cluster) letIn(p serfring.Member, id identity) error {
	c.ops.Lock()
	defer c.ops.Unlock()
	there := slices.ContainsFunc(c.servers(), func(s raft.Server) bool { return string(s.ID) == id.Server })
	if !there {
		add := c.raft.AddNonvoter(raft.ServerID(id.Server), address(p.PeerAddr, id.Server), 0, c.config.CallTimeout)
		if err := add.Error(); err != nil {
			return fmt.Errorf("membership: add raft server %s: %w", id.Server, err)
		}
	}
	join := joinCommand{Name: p.Name, Boot: p.Boot, PeerAddr: p.PeerAddr, Server: id.Server, Voided: id.Voided}
	if err := c.applyHere(command{Join: &join}); err != nil {
		return err
	}
	c.config.Logger.Info("gateway joined", slog.String("name", p.Name), slog.String("peer_address", p.PeerAddr), slog.String("boot", p.Boot))
	return nil
}
