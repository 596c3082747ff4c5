package cluster

import (
	"slices"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// Kill ends the process on a host at once, as SIGKILL does: the kernel closes its
// connections.
func (c *Cluster) Kill(host int) {
	h := &c.hosts[host]
	if h.process == nil {
		return
	}
	c.tracef("", "host %d: killed", host)
	c.endAll(h.process.gateway, "lost")
	c.endHolders(host)
	for _, r := range c.coming {
		if r.host == host && r.state == coming {
			r.over("lost")
		}
	}
	h.process, h.leaving = nil, false
	c.Engine.Kill(host)
	c.doubtAll(host, false)
}

// Runs reports whether a process runs on a host, or never will again.
func (c *Cluster) Runs(host int) bool { return c.hosts[host].process != nil || c.hosts[host].left }

// Start starts a process on a host where none runs, unless it has left for good.
func (c *Cluster) Start(host int) {
	if !c.Runs(host) {
		c.tracef("", "host %d: started", host)
		c.Engine.Start(host)
		c.boot(host)
	}
}

// Leave lets a gateway go in order, as SIGTERM does: it takes no more requests,
// refuses those that wait, waits for those in flight, and has itself removed.
// The last one stays.
func (c *Cluster) Leave(host int) {
	staying := 0
	for _, m := range c.log.Members {
		if m.Host != host && c.hosts[m.Host].process != nil && !c.hosts[m.Host].leaving {
			staying++
		}
	}
	if h := &c.hosts[host]; h.process != nil && !h.leaving && staying > 0 {
		h.leaving = true
		h.process.after(0, timerLeave, 0)
	}
}

// drain begins to leave.
func (p *process) drain() {
	c := p.c
	p.tracef("leaves")
	p.leaving = true
	if p.gateway.Node() == 0 {
		return
	}
	for i, r := range c.requests[1:] {
		if r.gateway == p.gateway && r.state == waiting {
			r.over("refused")
			p.gateway.Cancel(protocol.Request(i + 1))
		}
	}
}

// Pause stops a host's process, as SIGSTOP does.
func (c *Cluster) Pause(host int) {
	c.tracef("", "host %d: paused", host)
	c.Engine.Pause(host)
	c.doubtAll(host, false)
}

// Resume lets it go on.
func (c *Cluster) Resume(host int) {
	if c.Paused(host) {
		c.tracef("", "host %d: resumed", host)
		c.hosts[host].process.woke = c.Now()
		c.Engine.Resume(host)
		c.checkLinks(host)
	}
}

// SetK changes k, if there is a leader that can.
func (c *Cluster) SetK(k int) bool {
	l := c.leader()
	return l != nil && l.propose(func(a *agreed) bool {
		if a.K == k {
			return false
		}
		a.K = k
		a.beginEpoch()
		return true
	})
}

// Recover begins a new epoch, if there is a leader that can.
func (c *Cluster) Recover() bool {
	l := c.leader()
	return l != nil && l.propose(func(a *agreed) bool { a.beginEpoch(); return true })
}

// Suspect has the leader suspend whoever runs on a host, rightly or wrongly.
func (c *Cluster) Suspect(host int) bool {
	l := c.leader()
	m, in := c.log.Named(host)
	return l != nil && in && l.suspend([]kmutex.Node{m.Node})
}

// Elect has another host elected, if it is a voter with a majority; the leader
// so far may not notice.
func (c *Cluster) Elect(host int) {
	if slices.Contains(c.raft.voters, host) && c.works(host) {
		c.elect(host)
	}
}

func (c *Cluster) leader() *leadership {
	if p := c.hosts[c.raft.leader].process; p != nil && p.leads != nil && p.leads.term == c.raft.term {
		return p.leads
	}
	return nil
}

// Voters returns the hosts that vote.
func (c *Cluster) Voters() []int { return slices.Clone(c.raft.voters) }

// Leads returns the host that was elected last.
func (c *Cluster) Leads() int { return c.raft.leader }

// View returns the newest view.
func (c *Cluster) View() *fairk.View { return c.newest }

// Left reports whether a host has left for good.
func (c *Cluster) Left(host int) bool { return c.hosts[host].left }
