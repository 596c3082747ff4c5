package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
)

// errNotMember means that the leader knows the incarnation as lost.
var errNotMember = errors.New("membership: this incarnation is lost")

func isNotMember(err error) bool { return errors.Is(err, errNotMember) }

// renewalRequest is a renewal with what the member reports.
type renewalRequest struct {
	lease.Renewal
	// Down are members to which this one's link has been down for half a lease.
	Down []kmutex.Node `json:"down,omitempty"`
	// Missing are members whose reports this one misses, as the home of a pool.
	Missing []kmutex.Node `json:"missing,omitempty"`
	// View is the number of the newest view that this one has.
	View uint64 `json:"view"`
}

// maxComplaints bounds how many links, and how many reports, a request complains
// about: all of them have room in maxCommand.
const maxComplaints = 256

// renewalAnswer is the leader's answer to a renewalRequest.
type renewalAnswer struct {
	Granted bool `json:"granted"`
	Lost    bool `json:"lost"`
}

type renewalResult struct {
	renewal lease.Renewal
	err     error
}

// renewal is one that was sent to a leader.
type renewal struct {
	to   string // the leader's raft server
	term uint64 // in which it was sent
	sent time.Time
}

// of reports whether the renewal was sent to that leader in that term.
func (r *renewal) of(leader string, term uint64) bool {
	return r != nil && r.to == leader && r.term == term
}

// renew keeps the lease while the cluster runs: it follows the views, sends
// renewals, and notices when the lease has lapsed. When one is not answered for a
// third of the lease, another goes out beside it, over another connection: the answer
// may be late, or the connection dead.
func (c *Cluster) renew() {
	answers := make(chan renewalResult, lease.Outstanding)
	asking := 0
	var asked time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	announced := c.config.Boot
	for {
		changed := c.Changed()
		v := c.View()
		if c.incarnation.follow(v, c.config.Name, c.terms(v)) {
			c.standingChanged()
		}
		wait := c.announce(&announced)
		patience := time.Until(asked.Add(v.Lease / 3))
		switch {
		case asking == 0, asking < lease.Outstanding && patience <= 0:
			renewal, due, next := c.incarnation.renewal()
			if due {
				asking++
				asked = time.Now()
				c.wg.Go(func() { answers <- renewalResult{renewal, c.sendRenewal(v, renewal)} })
			}
			wait = min(wait, next)
		case asking < lease.Outstanding:
			wait = min(wait, patience)
		}
		if v.Lease > 0 {
			wait = min(wait, v.Lease/6) // the machine may have slept
		}
		timer.Reset(wait)
		select {
		case <-c.closing.Done():
			return
		case <-changed:
		case <-timer.C:
		case a := <-answers:
			asking--
			if c.incarnation.answered(a.renewal, a.err) {
				c.standingChanged()
			}
		}
	}
}

// terms of the leases in a view.
func (*Cluster) terms(v *View) lease.Terms {
	return lease.Terms{Lease: v.Lease, Bound: closeTime}
}

func (c *Cluster) standingChanged() {
	s := c.Standing()
	message := "lease granted"
	if s.Until.IsZero() {
		message = "no lease"
	}
	c.config.Logger.Info(message, slog.Uint64("node", uint64(s.Node)))
	c.machine.touch()
}

// announce has gossip carry the boot of a new incarnation, and returns when to
// try again if it could not.
func (c *Cluster) announce(announced *string) time.Duration {
	boot, _ := c.incarnation.current()
	if boot == *announced {
		return time.Hour
	}
	if err := c.config.Discovery.SetBoot(boot); err != nil {
		c.config.Logger.Warn("gossip does not carry the new incarnation yet", slog.Any("error", err))
		return 10 * soon
	}
	*announced = boot
	return 0
}

// sendRenewal asks the leader for one more lease.
func (c *Cluster) sendRenewal(v *View, r lease.Renewal) error {
	ctx, cancel := context.WithTimeout(c.closing, renewTimeout(v.Lease))
	defer cancel()
	p := renewalRequest{Renewal: r, Down: c.down(leader.DownAfter(c.terms(v))), Missing: c.missing(leader.MissingAfter(c.terms(v))), View: v.Number}
	_, id := c.raft.LeaderWithID()
	sent, term := time.Now(), c.raft.CurrentTerm()
	switch {
	case id == "":
		return errNoLeader
	case string(id) == c.storage.meta.Server:
		return c.leases.ask(ctx, p)
	}
	addr, ok := c.addressOf(id)
	if !ok {
		return errNoLeader
	}
	now := &renewal{string(id), term, sent}
	if !c.asked.Load().of(now.to, term) {
		c.asked.Store(now)
	}
	c.wg.Go(func() { c.whileLed(ctx, now.to, cancel) })
	var a renewalAnswer
	if err := c.call(ctx, http.MethodPost, addr, pathLease, p, &a); err != nil {
		return err
	}
	switch {
	case a.Lost:
		c.asked.Store(nil)
		return errNotMember
	case !a.Granted:
		return fmt.Errorf("membership: renewal: %s says nothing", addr)
	default:
		if last := c.renewed.Load(); last == nil || last.sent.Before(sent) {
			c.renewed.Store(now) // two at once: either will do
		}
		return nil
	}
}

// whileLed calls cancel when the leader is no longer the given one, or is unreachable.
func (c *Cluster) whileLed(ctx context.Context, leads string, cancel func()) {
	for {
		changed := c.Changed()
		if _, id := c.raft.LeaderWithID(); string(id) != leads || c.serverUnreachable(leads) {
			cancel()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// down returns the members to which the link has been down for that long.
func (c *Cluster) down(d time.Duration) []kmutex.Node {
	if c.config.Links == nil {
		return nil
	}
	return complaints(c.config.Links.Down(), d)
}

// missing returns the members whose reports have been missed for that long.
func (c *Cluster) missing(d time.Duration) []kmutex.Node {
	if c.config.Missing == nil {
		return nil
	}
	return complaints(c.config.Missing(), d)
}

// complaints returns the nodes whose trouble has lasted for d, in ascending order.
func complaints(since map[kmutex.Node]time.Time, d time.Duration) []kmutex.Node {
	now := time.Now()
	var nodes []kmutex.Node
	for node, at := range since {
		if now.Sub(at) >= d {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes[:min(len(nodes), maxComplaints)]
}
