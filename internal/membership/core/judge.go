package core

import (
	"log/slog"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// observe returns what this process sees for itself.
func (c *Core) observe() leader.Observation {
	s := leader.Observation{
		Self: c.cfg.Name, Boots: map[string]string{c.cfg.Name: c.self.boot}, Unreachable: make(map[kmutex.Node]time.Duration),
		Alone: !c.majorityAnswers(),
	}
	for _, g := range c.peers.gossip {
		if g.Alive && g.Name != c.cfg.Name {
			s.Boots[g.Name] = g.Boot
		}
	}
	for _, m := range c.machine.View().Members {
		if id := serverID(m.Server); c.gone(id) {
			s.Unreachable[m.Node] = c.peers.down[m.Node]
			if p := c.peers.probes[m.Name]; p != nil {
				s.Unreachable[m.Node] = p.since
			}
		}
	}
	return s
}

// Bounds on one command: how many nodes it names, and how many with a reason for each.
const (
	maxNodes    = 512
	maxSuspects = 56
)

// judge carries out what the rules say, unless the last of it is not agreed on yet.
func (c *Core) judge() {
	l := c.l
	l.follow(c)
	if c.leaving {
		return
	}
	if len(l.rules.Quiet(c.now)) > 0 {
		c.peers.next = c.now
	}
	verdict := l.rules.Judge(c.observe(), c.now)
	if !c.decreed() {
		for batch := range slices.Chunk(verdict.Suspend, maxSuspects) {
			var suspend views.Suspend
			for _, s := range batch {
				suspend.Nodes = append(suspend.Nodes, s.Node)
				suspend.Reasons = append(suspend.Reasons, views.CutReason(s.Text(c.cfg.Name)))
			}
			c.decree(views.Command{Suspend: &suspend})
		}
		for nodes := range slices.Chunk(verdict.Expire, maxNodes) {
			c.decree(views.Command{Expire: &views.Expire{Nodes: nodes}})
		}
		for _, back := range verdict.Return {
			for nodes := range slices.Chunk(back.Nodes, maxNodes) {
				c.decree(views.Command{Return: &views.Return{Pool: back.Pool, Nodes: nodes}})
			}
		}
	}
	if verdict.HandOver {
		l.rules.HandedOver(c.now)
		if c.warnings.first("handing over", c.now) {
			c.log(slog.LevelWarn, "handing leadership over: gateways that are alive cannot reach this one, or the voters cannot")
		}
		c.handOver()
	}
}
