package membership

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/kmutex"
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

// joinCandidates returns the gateways that are alive and not, or not as they are,
// in the view or in raft's configuration.
func (c *Cluster) joinCandidates(l *loop, peers []serfring.Member, now time.Time) []serfring.Member {
	view := c.View()
	there := make(map[raft.ServerID]bool)
	for _, s := range c.servers() {
		there[s.ID] = true
	}
	var candidates []serfring.Member
	for _, p := range alive(peers) {
		m, in := view.Named(p.Name)
		settled := view.lostBoot(p.Name, p.Boot) || in && m.Boot == p.Boot && m.PeerAddr == p.PeerAddr && there[raft.ServerID(m.Server)]
		if !settled && l.failed.due(p, now) {
			candidates = append(candidates, p)
		}
	}
	return candidates
}

// acceptable judges what a gateway said about itself. Gossip may be old: what
// counts is what the gateway says.
func (c *Cluster) acceptable(p serfring.Member, id identity) bool {
	if id.Leaving || id.Bootstrapping || id.Boot != p.Boot || id.Server == "" || nameOf(raft.ServerID(id.Server)) != p.Name {
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

// candidate is a gateway that wants to join, and what it answered.
type candidate struct {
	peer serfring.Member
	id   identity
	// answered: it said who it is, and whom it does not reach.
	answered  bool
	unreached []string
}

// letInAll lets in those of the candidates that may come, each as soon as it has
// answered: one that cannot be reached does not hold up the others. It returns when
// to try again.
func (c *Cluster) letInAll(l *loop, candidates []serfring.Member, now time.Time) (time.Duration, error) {
	answers := make(chan candidate, len(candidates))
	slots := make(chan struct{}, asksAtOnce)
	for _, p := range candidates {
		c.wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers <- c.askCandidate(p)
		})
	}
	again := c.config.Interval
	var failed error
	for range candidates {
		switch v := <-answers; {
		case failed != nil: // all have to end
		case !v.answered || !c.acceptable(v.peer, v.id):
			l.failed.failed(v.peer, now)
			again = min(again, l.failed[v.peer.Name].wait)
		case !c.mayJoin(v):
			again = min(again, 4*soon)
			failed = c.takeBack(v.peer, v.id)
		default:
			failed = c.letIn(v.peer, v.id)
			delete(l.failed, v.peer.Name)
		}
	}
	return again, failed
}

// askCandidate asks a gateway who it is, and whom it does not reach.
func (c *Cluster) askCandidate(p serfring.Member) candidate {
	v := candidate{peer: p}
	v.id, v.answered = c.identifyAll(c.closing, []serfring.Member{p})[p.Name]
	if v.answered && !c.leases.waits(p.Name) {
		v.unreached, v.answered = c.unreachedFrom(p)
	}
	if v.id.Witness { // it needs no links but to the leader
		v.unreached = slices.DeleteFunc(v.unreached, func(name string) bool { return name != c.config.Name })
	}
	return v
}

// mayJoin reports that a gateway may come in, as the leader's rules see it.
func (c *Cluster) mayJoin(v candidate) bool {
	name := v.peer.Name
	if m, in := c.View().Named(name); in && m.Boot == v.peer.Boot {
		return true // only its address is another
	}
	if c.leases.waits(name) {
		return false
	}
	obstacle := c.leases.letIn(name, v.unreached, c.observe())
	if obstacle == "" {
		c.silent.over("reach " + name)
		return true
	}
	if c.silent.lasts("reach "+name) && c.once.First("reach "+name) {
		c.config.Logger.Warn("a gateway is not let in because it does not reach a member",
			slog.String("name", name), slog.String("member", obstacle),
			slog.String("hint", "every gateway must reach the peer port of every other"))
	}
	return false
}

// takeBack ends the lease of the incarnation before, if a gateway says that nothing of
// it is in flight: what it had does not have to wait until the gateway may come in.
func (c *Cluster) takeBack(p serfring.Member, id identity) error {
	if l, lost := c.View().LostMember(id.Voided); !lost || !l.Leased || l.Name != p.Name {
		return nil
	}
	return c.applyHere(command{Expire: &expireCommand{Nodes: []kmutex.Node{id.Voided}}})
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
	join := joinCommand{Name: p.Name, Boot: p.Boot, PeerAddr: p.PeerAddr, Server: id.Server, Voided: id.Voided, Witness: id.Witness}
	if err := c.applyHere(command{Join: &join}); err != nil {
		return err
	}
	c.config.Logger.Debug("let a gateway in", slog.String("name", p.Name), slog.String("peer_address", p.PeerAddr), slog.String("boot", p.Boot))
	return nil
}
