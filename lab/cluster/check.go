package cluster

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// formed tells why not all members are in the newest epoch; nil: they are.
func (c *Cluster) formed() error {
	for _, m := range c.newest.Members {
		p := c.hosts[m.Host].process
		if p == nil || p.boot != m.Boot || p.gateway.Pool() == nil || p.gateway.Pool().State() != pool.Installed || p.gateway.Pool().Epoch() != c.newest.Epoch {
			return fmt.Errorf("node %d is not in epoch %d", m.Node, c.newest.Epoch)
		}
	}
	return nil
}

// Whole returns the pool over all its gateways, for the invariants of kmutex, if
// there is such a thing at the moment: all members run in the newest epoch.
func (c *Cluster) Whole() (*kmutex.World, bool) {
	v := c.newest
	if len(v.Members) == 0 || c.formed() != nil {
		return nil, false
	}
	w := &kmutex.World{K: v.K, Early: c.cfg.Early}
	for _, m := range v.Members {
		p := c.hosts[m.Host].process
		s := p.gateway.Pool().Machine().State()
		if s.Tokens != nil { // else it joined in the middle of the epoch
			w.Tokens, w.Withheld = s.Tokens, s.Withheld
		}
		w.Nodes = append(w.Nodes, s)
		w.AskPending = w.AskPending || p.gateway.Asking()
	}
	c.Pending(func(_, _ int, m any) {
		e, ok := fairk.Envelope(m)
		_, to := v.Member(e.To)
		if ok && to && e.Message.Epoch == v.Epoch {
			w.Flight = append(w.Flight, e)
		}
	})
	for _, m := range v.Members {
		c.hosts[m.Host].process.gateway.Waiting(func(e kmutex.Envelope) {
			if e.Message.Epoch == v.Epoch {
				w.Flight = append(w.Flight, e)
			}
		})
	}
	return w, true
}

// Held tells of a ticket that has a token and no request; all members must be in
// the newest epoch. An incarnation whose lease has just run out lets nobody in, and
// is about to be void.
func (c *Cluster) Held() error {
	for _, m := range c.newest.Members {
		p := c.hosts[m.Host].process
		if !p.entitled() {
			continue
		}
		for _, g := range p.gateway.Pool().Machine().State().Running {
			if p.gateway.Holds(g.Request) {
				continue
			}
			if r := c.requests[g.Request]; r.state == over || r.state == waiting {
				return fmt.Errorf("node %d holds token %d for ticket %d, which is over (%s)", m.Node, g.Token, g.Request, r.outcome)
			}
		}
	}
	return nil
}

// Settled tells why the cluster is not in order: a process that is not in the view
// with a lease, a member that is not in the newest epoch, tokens that are owed. Processes
// on hosts that are excused may be in no view; nil: none is.
func (c *Cluster) Settled(excused func(host int) bool) error {
	v := c.newest
	var errs []error
	for i := range c.hosts {
		if p := c.hosts[i].process; p != nil {
			m, in := v.Named(i)
			if !in && excused != nil && excused(i) {
				continue
			}
			if !in || m.Boot != p.boot || !p.entitled() {
				errs = append(errs, fmt.Errorf("host %d is not back in the view with a lease", i))
			}
		}
	}
	if len(v.Owed) > 0 {
		errs = append(errs, fmt.Errorf("tokens of %v are still withheld", v.Owed))
	}
	return errors.Join(append(errs, c.formed())...)
}
