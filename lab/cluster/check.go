package cluster

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/pool"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/kmutex/invariants"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// member returns the process of a member, if it is that incarnation.
func (c *Cluster) member(m views.Member) (*process, bool) {
	p := c.processes[hostOf(m.Name)]
	return p, p != nil && p.h.Boot == m.Boot && p.gateway.Node() == m.Node
}

// formed tells why not all members are in the newest epoch; nil: they are.
func (c *Cluster) formed() error {
	for _, m := range c.View().Members {
		p, runs := c.member(m)
		if !runs || p.gateway.Pool() == nil || p.gateway.Pool().State() != pool.Installed || p.gateway.Pool().Epoch() != c.Pool().Epoch {
			return fmt.Errorf("node %d is not in epoch %d", m.Node, c.Pool().Epoch)
		}
	}
	return nil
}

// Whole returns the pool over all its gateways, for the invariants of kmutex, if
// there is such a thing at the moment: all members run in the newest epoch.
func (c *Cluster) Whole() (*invariants.World, bool) {
	v, spec := c.View(), c.Pool()
	if len(v.Members) == 0 || spec.K == 0 || c.formed() != nil {
		return nil, false
	}
	w := &invariants.World{K: spec.K, Early: c.cfg.Early}
	for _, class := range spec.Classes {
		w.Classes = append(w.Classes, kmutex.Class{K: class.K, Tokens: class.Tokens})
	}
	for _, m := range v.Members {
		p, _ := c.member(m)
		s := p.gateway.Pool().Machine().State()
		if s.Tokens != nil { // else it joined in the middle of the epoch
			w.Tokens, w.Withheld = s.Tokens, s.Withheld
		}
		w.Nodes = append(w.Nodes, s)
		w.AskPending = w.AskPending || p.gateway.Asking()
	}
	c.Unreceived(func(m any) {
		e, ok := fairk.Envelope(m)
		if _, to := v.Member(e.To); ok && to && e.Message.Epoch == spec.Epoch {
			w.Flight = append(w.Flight, e)
		}
	})
	for _, m := range v.Members {
		p, _ := c.member(m)
		p.gateway.Waiting(func(e kmutex.Envelope) {
			if e.Message.Epoch == spec.Epoch {
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
	for _, m := range c.View().Members {
		p, _ := c.member(m)
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
	v := c.View()
	var errs []error
	for i, p := range c.processes {
		if p == nil {
			continue
		}
		m, in := v.Named(p.h.Name)
		if !in && excused != nil && excused(i) {
			continue
		}
		if !in || m.Boot != p.h.Boot || !p.entitled() {
			errs = append(errs, fmt.Errorf("host %d is not back in the view with a lease", i))
		}
	}
	if owed := c.Pool().Owed; len(owed) > 0 {
		errs = append(errs, fmt.Errorf("tokens of %v are still withheld", owed))
	}
	return errors.Join(append(errs, c.formed())...)
}
