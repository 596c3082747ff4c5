package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/kmutex"
)

// watch probes the members that may be unreachable, and as the leader acts upon what
// is known of all members. A gateway that does not lead and has all its links has
// nothing to do.
func (c *Cluster) watch() {
	var linksChanged <-chan struct{}
	if c.config.Links != nil {
		linksChanged = c.config.Links.LinksChanged()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := c.Changed() // the lead, too
		now := time.Now()
		doubts := c.watchLinks(now)
		c.watchOutsiders(now)
		leads := c.raft.State() == raft.Leader
		pause := leader.Interval
		if !leads && !doubts {
			pause = c.config.Interval
		}
		timer.Reset(pause)
		select {
		case <-c.closing.Done():
			return
		case <-changed:
		case <-linksChanged:
		case <-timer.C:
		}
		if !leads || c.leaving.Load() {
			continue
		}
		if err := c.judge(); err != nil && !notLeading(err) && c.once.First("judge "+err.Error()) {
			c.config.Logger.Warn("a gateway could not be suspended, or its lease not ended: trying again", slog.Any("error", err))
		}
	}
}

func notLeading(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrRaftShutdown)
}

// judge is the leader's turn.
func (c *Cluster) judge() error {
	verdict, leading := c.leases.judge(c.observe())
	if !leading {
		return nil
	}
	return c.carryOut(verdict)
}

// carryOut does what the leader's rules say. All suspicions of the moment go into one
// command, if they have room in it. A leader that cannot commit suspends nobody.
func (c *Cluster) carryOut(verdict leader.Verdict) error {
	for batch := range slices.Chunk(verdict.Suspend, maxSuspects) {
		var suspend suspendCommand
		for _, s := range batch {
			suspend.Nodes = append(suspend.Nodes, s.Node)
			suspend.Reasons = append(suspend.Reasons, cutReason(s.Text(c.config.Name)))
		}
		if err := c.applyHere(command{Suspend: &suspend}); err != nil {
			return err
		}
		for i, s := range batch {
			c.config.Logger.Warn("gateway suspended", slog.String("name", s.Name), slog.Uint64("node", uint64(s.Node)), slog.String("reason", suspend.Reasons[i]))
		}
	}
	for nodes := range slices.Chunk(verdict.Expire, maxNodes) {
		if err := c.applyHere(command{Expire: &expireCommand{Nodes: nodes}}); err != nil {
			return err
		}
	}
	for _, back := range verdict.Return {
		for nodes := range slices.Chunk(back.Nodes, maxNodes) {
			if err := c.applyHere(command{Return: &returnCommand{Pool: back.Pool, Nodes: nodes}}); err != nil {
				return err
			}
		}
	}
	if verdict.HandOver {
		return c.resign()
	}
	return nil
}

// maxNodes is how many nodes one command names at most, and maxSuspects how many with
// a reason for each: the longest of them have room in maxCommand.
const (
	maxNodes    = 512
	maxSuspects = 56
)

// resign hands the lead over, since the members or the voters do not get through to
// this gateway.
func (c *Cluster) resign() error {
	c.leases.handedOver()
	c.config.Logger.Warn("handing leadership over: gateways that are alive cannot reach this one, or the voters cannot")
	ctx, cancel := context.WithTimeout(c.closing, c.config.CallTimeout)
	defer cancel()
	return c.handOverOnce(ctx)
}

// observe returns what this gateway sees for itself.
func (c *Cluster) observe() leader.Observation {
	s := leader.Observation{Self: c.config.Name, Boots: make(map[string]string), Unreachable: make(map[kmutex.Node]time.Duration), Outsiders: c.outsiders.get()}
	for _, p := range alive(c.config.Discovery.Members()) {
		s.Boots[p.Name] = p.Boot
	}
	for node, since := range c.prober.unreachable() {
		s.Unreachable[node] = c.incarnation.at(since)
	}
	return s
}

// judge returns what the leader has to do; false: this gateway does not lead.
func (g *leaseServer) judge(s leader.Observation) (leader.Verdict, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return leader.Verdict{}, false
	}
	g.follow()
	return g.rules.Judge(s, g.c.incarnation.clock()), true
}

// quiet returns the members that have not renewed for a while, but for this one.
func (g *leaseServer) quiet() []kmutex.Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return nil
	}
	self, _ := g.c.Self()
	g.follow()
	return slices.DeleteFunc(g.rules.Quiet(g.c.incarnation.clock()), func(n kmutex.Node) bool { return n == self })
}

func (g *leaseServer) handedOver() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules.HandedOver(g.c.incarnation.clock())
}

// waits reports that the leader keeps a gateway out for a while.
func (g *leaseServer) waits(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return true
	}
	g.follow() // it may have been suspended just now
	return g.rules.Waits(name, g.c.incarnation.clock())
}

// letIn returns the member for whose sake a gateway stays out that does not reach
// those named.
func (g *leaseServer) letIn(name string, unreached []string, s leader.Observation) (obstacle string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return ""
	}
	g.follow()
	return g.rules.LetIn(name, unreached, s, g.c.incarnation.clock())
}

// forRules returns what the leader's rules need of the view.
func (v *View) forRules() leader.View {
	rv := leader.View{Number: v.Number, Leased: v.leased(), Members: make([]leader.Member, len(v.Members))}
	homes := make(map[kmutex.Node]bool)
	for _, p := range v.Pools {
		homes[p.Home] = true
		if p.Reclaim == admission.ReclaimHold && len(p.Owed) > 0 {
			rv.Debts = append(rv.Debts, leader.Debt{Pool: p.Name, HoldMax: p.HoldMax, Nodes: p.Owed})
		}
	}
	for i, m := range v.Members {
		rv.Members[i] = leader.Member{Node: m.Node, Name: m.Name, Boot: m.Boot, Home: homes[m.Node], Witness: m.Witness}
	}
	return rv
}
