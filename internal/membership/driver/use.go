package driver

import (
	"context"
	"fmt"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// View returns the newest view that this gateway knows of.
func (c *Cluster) View() *views.View { return c.view.Load() }

// Standing returns the present one.
func (c *Cluster) Standing() Standing { return *c.standing.Load() }

// Changed returns a channel that is closed when the next view is there, when this gateway's
// standing has changed, or when there is another leader.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Failed yields an error when this gateway cannot take part any more.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Leads reports that this gateway leads.
func (c *Cluster) Leads() bool { return core.ID(c.leader.Load()) == c.id }

// Self returns the Node of this gateway's incarnation, if it has a standing.
func (c *Cluster) Self() (kmutex.Node, bool) {
	n := c.Standing().Node
	_, in := c.View().Member(n)
	return n, in
}

// Rejoin lets a gateway come back whose incarnation is void. The caller vouches that nothing
// of it is in flight any more.
func (c *Cluster) Rejoin() {
	if c.void.Load() {
		c.post(core.Rejoin{})
	}
}

// Leave takes this gateway out of the view and closes the cluster.
func (c *Cluster) Leave(ctx context.Context) error {
	c.post(core.Leave{})
	select {
	case <-c.left:
		return c.Close()
	case <-ctx.Done():
		return fmt.Errorf("membership: leave: %w", ctx.Err())
	case <-c.closing.Done():
		return errClosed
	}
}

// agree has a command agreed on, and waits until this gateway's view shows it.
func (c *Cluster) agree(ctx context.Context, what string, cmd views.Command) error {
	said := make(chan error, 1)
	c.mu.Lock()
	c.tags++
	tag := c.tags
	c.waiting[tag] = said
	c.mu.Unlock()
	c.post(core.Propose{Tag: tag, Command: cmd})
	select {
	case err := <-said:
		if err != nil {
			return fmt.Errorf("membership: %s: %w", what, err)
		}
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, tag)
		c.mu.Unlock()
		c.post(core.Forget{Tag: tag})
		return fmt.Errorf("membership: %s: %w", what, ctx.Err())
	case <-c.closing.Done():
		return errClosed
	}
}

// DefinePool makes sure that there is a pool of the given name; the first definition wins.
func (c *Cluster) DefinePool(ctx context.Context, d views.Define) error {
	if err := d.Check(); err != nil {
		return err
	}
	return c.agree(ctx, fmt.Sprintf("define pool %q", d.Name), views.Command{Define: &d})
}

// SetK changes the number of tokens of a pool.
func (c *Cluster) SetK(ctx context.Context, s views.SetK) error {
	return c.agree(ctx, fmt.Sprintf("set k of pool %q", s.Name), views.Command{SetK: &s})
}
