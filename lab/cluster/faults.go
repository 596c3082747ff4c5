package cluster

import (
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/sim"
)

// Runs reports whether a process runs on a host, or never will again.
func (c *Cluster) Runs(host int) bool { return c.Host(host).Core != nil || c.Left(host) }

// Left reports whether a host has left for good.
func (c *Cluster) Left(host int) bool { return c.Host(host).Left }

// Start starts a process on a host where none runs, unless it has left for good.
func (c *Cluster) Start(host int) {
	if !c.Runs(host) {
		c.Host(host).Start()
	}
}

// Kill ends the process on a host at once, as SIGKILL does.
func (c *Cluster) Kill(host int) { c.Host(host).Kill() }

// MayLose is [hosts.World.MayLose]. A process without a disk that is about to leave takes its vote along soon.
func (c *Cluster) MayLose(host int) bool {
	for _, p := range c.processes {
		if p != nil && p.leaving && p.h.Memory && p.h.Core != nil {
			return false
		}
	}
	return c.World.MayLose(host)
}

// Pause stops a host's process, as SIGSTOP does.
func (c *Cluster) Pause(host int) {
	if c.Host(host).Core != nil {
		c.Host(host).Pause()
	}
}

// Resume lets it go on.
func (c *Cluster) Resume(host int) {
	if c.Paused(host) {
		c.processes[host].woke = c.Now()
		c.Host(host).Resume()
	}
}

// Leave lets a gateway go in order, as SIGTERM does: it takes no more requests,
// refuses waiting requests, waits for requests in flight, and has itself removed. The last gateway stays.
func (c *Cluster) Leave(host int) {
	staying := 0
	for _, m := range c.View().Members {
		if p := c.processes[hostOf(m.Name)]; p != nil && p.h.Index != host && !p.leaving {
			staying++
		}
	}
	if p := c.processes[host]; p != nil && !p.leaving && staying > 0 {
		c.Host(host).After(0, sim.Timer{Kind: timerLeave})
	}
}

// propose has somebody who works ask for a command: who leads, if anybody does.
func (c *Cluster) propose(cmd views.Command) {
	h := c.Leader()
	for i := 0; h == nil && i < c.cfg.Hosts; i++ {
		if c.Host(i).Works() {
			h = c.Host(i)
		}
	}
	if h != nil {
		h.Propose(cmd)
	}
}

// SetK changes k; where upstreams have their own, that of one of them, to one less: it may be 0.
func (c *Cluster) SetK(k int) {
	set := &views.SetK{Name: poolName, K: k}
	if n := c.cfg.Upstreams; n > 0 {
		set.Upstream, set.K = upstreamName(k%n), k-1
	}
	if c.Pool().CheckK(set.Upstream, set.K) == nil {
		c.propose(views.Command{SetK: set})
	}
}

// Sick is an upstream that a host cannot reach from now on, or can again.
func (c *Cluster) Sick(host, upstream int, sick bool) {
	if p := c.processes[host]; p != nil && upstream < c.cfg.Upstreams {
		if p.barred == nil {
			p.barred = make(map[int]bool)
		}
		p.barred[upstream] = sick
		p.bar()
	}
}

// Recover begins a new epoch.
func (c *Cluster) Recover() {
	c.propose(views.Command{Recover: &views.Recover{Pool: poolName, Epoch: c.Pool().Epoch}})
}

// Suspect suspends the gateway on a host, rightly or wrongly.
func (c *Cluster) Suspect(host int) {
	if m, in := c.View().Named(c.Host(host).Name); in {
		c.propose(views.Command{Suspend: &views.Suspend{Nodes: []kmutex.Node{m.Node}, Reasons: []string{"the lab wants it"}}})
	}
}

// Leads returns the host that leads; -1: none.
func (c *Cluster) Leads() int {
	if l := c.Leader(); l != nil {
		return l.Index
	}
	return -1
}

// Waits reports that the leader has a gateway stay out for a while, since its links or
// its reports failed again and again.
func (c *Cluster) Waits(host int) bool {
	l := c.Leader()
	return l != nil && c.Host(host).Core != nil && l.Core.Waits(c.Host(host).Name)
}

// Passes reports whether a host can open a connection to another, and long packets pass
// over it in both directions.
func (c *Cluster) Passes(from, to int) bool { return c.Host(from).Passes(c.Host(to)) }
