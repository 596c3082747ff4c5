package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// What is wrong, in words for people.

// errNoLeader means that no leader was there in time.
var errNoLeader = errors.New("no leader")

// warnings are what was said, and how long each trouble has lasted.
type warnings struct {
	said   map[string]time.Duration
	since  map[string]trouble
	lookAt time.Duration
}

// trouble was noted from then on, and last.
type trouble struct{ from, last time.Duration }

const (
	// lasting is how long a trouble lasts until it is said, and sayAgain how long it stays said.
	lasting  = 3 * time.Second
	sayAgain = time.Minute
	// mostTroubles bounds what is remembered: texts come from others.
	mostTroubles = 256
)

// first reports whether something was not said lately.
func (w *warnings) first(what string, now time.Duration) bool {
	if at, said := w.said[what]; said && now-at < sayAgain {
		return false
	}
	if w.said == nil || len(w.said) >= mostTroubles {
		w.said = make(map[string]time.Duration)
	}
	w.said[what] = now
	return true
}

// lasts notes a trouble, and reports whether it has lasted and was not said lately. One that was not
// noted for a while is a new one.
func (w *warnings) lasts(what string, now time.Duration) bool {
	if w.since == nil || len(w.since) >= mostTroubles {
		w.since = make(map[string]trouble)
	}
	t, known := w.since[what]
	if !known || now-t.last >= lasting {
		t.from = now
	}
	w.since[what] = trouble{t.from, now}
	return now-t.from >= lasting && w.first(what, now)
}

// foreign warns of a gateway of another cluster.
func (c *Core) foreign(h *Hello) {
	if c.warnings.first("foreign "+h.Name, c.now) {
		c.log(slog.LevelWarn, "a gateway of another cluster is not let in", slog.String("name", h.Name), slog.String("peer_address", h.Addr),
			slog.String("cluster", h.Cluster), slog.String("own_cluster", c.stored.note.Cluster),
			slog.String("hint", "to let it join, stop it and move its data directory away; to keep it apart, take it off the join list"))
	}
}

// unanswered warns of a gateway that gossip sees and that does not answer.
func (c *Core) unanswered(name string, why error) {
	if g, seen := c.peers.seen(name); seen && g.Alive && c.warnings.lasts("unanswered "+name, c.now) {
		c.log(slog.LevelWarn, "a gateway that gossip sees does not answer on its peer port", slog.String("name", name),
			slog.String("peer_address", g.Addr), slog.Any("error", why),
			slog.String("hint", "if the error does not say why, check its advertised address, the firewall and the cluster key"))
	}
}

// keptOut warns of a gateway that is not let in.
func (c *Core) keptOut(name, member string) {
	if c.warnings.lasts("kept out "+name, c.now) {
		c.log(slog.LevelWarn, "a gateway is not let in because it does not reach a member", slog.String("name", name), slog.String("member", member),
			slog.String("hint", "every gateway must reach the peer port of every other"))
	}
}

// tooSlow warns of a gateway that is not let in because round trips to it take too long.
func (c *Core) tooSlow(name string, trip time.Duration) {
	if c.warnings.lasts("too slow "+name, c.now) {
		c.log(slog.LevelWarn, "a gateway is not let in because round trips to it take too long", slog.String("name", name),
			slog.Duration("takes", trip), slog.Duration("longest", c.longestTrip()),
			slog.String("hint", "mend the network to it, or found a cluster with a longer cluster.lease"))
	}
}

// complain says now and then what is wrong.
func (c *Core) complain() {
	if c.now < c.warnings.lookAt {
		return
	}
	c.warnings.lookAt = c.now + lookAgain
	if agreed := c.machine.View().Lease; agreed > 0 && agreed != c.cfg.Lease && c.warnings.first("lease", c.now) {
		c.log(slog.LevelWarn, "the cluster has agreed on another lease: cluster.lease of this gateway does not apply",
			slog.Duration("agreed", agreed), slog.Duration("configured", c.cfg.Lease),
			slog.String("hint", "set cluster.lease to the agreed one; another lease needs a new cluster"))
	}
	if c.stored.blank() && c.cfg.Expect > 1 {
		for _, g := range c.peers.gossip {
			if g.Alive && g.Expect > 1 && g.Expect != c.cfg.Expect && c.warnings.first("expect "+g.Name, c.now) {
				c.log(slog.LevelWarn, "another gateway expects another number of gateways", slog.String("name", g.Name),
					slog.Int("theirs", g.Expect), slog.Int("ours", c.cfg.Expect),
					slog.String("hint", "give every gateway that starts the cluster the same bootstrap_expect"))
			}
		}
	}
	if problem := c.Problem(); problem != nil && c.lead == 0 && c.now-c.orphan >= lasting && c.warnings.first(problem.Error(), c.now) {
		c.log(slog.LevelWarn, "not in the cluster", slog.String("reason", problem.Error()))
	}
}

// Problem returns what keeps this gateway from taking part, or nil.
func (c *Core) Problem() error {
	switch err := c.machine.Broken(); {
	case err != nil:
		return err
	case c.diverged:
		return errDiverged
	case c.lead != 0:
		return nil
	}
	if c.stored.blank() || c.now-c.orphan >= 2*time.Second {
		for _, id := range sortedKeys(c.peers.conns) {
			if h := c.peers.conns[id].hello; h != nil && h.Cluster != "" && c.stored.note.Cluster != "" && h.Cluster != c.stored.note.Cluster {
				return fmt.Errorf("this gateway belongs to cluster %s, %s to cluster %s: "+
					"if this one is to join, stop it and move its data directory away", c.stored.note.Cluster, h.Name, h.Cluster)
			}
		}
	}
	switch {
	case c.stored.blank():
		return c.waits()
	case c.now-c.orphan < 2*time.Second:
		return nil
	case c.behind():
		return fmt.Errorf("no leader: %w", c.errBehind())
	case c.Elsewhere() != "":
		return fmt.Errorf("%s leads, and there is no connection to it: every gateway must reach the peer port of every other", c.Elsewhere())
	default:
		return c.leaderless()
	}
}

// Elsewhere returns the gateway that leads as another one has just said, and to which there is no connection;
// empty: none.
func (c *Core) Elsewhere() string {
	for _, id := range sortedKeys(c.peers.conns) {
		p := c.peers.conns[id]
		if h := p.hello; h != nil && c.lead == 0 && c.now-p.heard < time.Second && h.Cluster == c.stored.note.Cluster &&
			h.Leader != 0 && h.Leader != c.id && c.peers.conns[h.Leader] == nil {
			return c.nameOf(h.Leader)
		}
	}
	return ""
}

// ErrBehind says that a log lacks what was agreed on.
var ErrBehind = errors.New("this gateway has lost what was agreed on")

func (c *Core) errBehind() error {
	last, floor := c.last(), c.roll.floor
	return fmt.Errorf("%w: its log ends at entry %d (term %d), and %s has entry %d (term %d): it has missed what came after, or an old copy of the data directory was put back",
		ErrBehind, last.Index, last.Term, c.roll.from, floor.Index, floor.Term)
}

// waits says what a gateway without a log waits for.
func (c *Core) waits() error {
	there, others, silent := 0, "", ""
	for _, g := range c.peers.gossip {
		switch {
		case !g.Alive:
			continue
		case g.Expect == c.cfg.Expect:
			there++
		default:
			others = "; " + g.Name + " does not count: it has another bootstrap_expect"
		}
		if _, connected := c.peers.named(g.Name); !connected && g.Name != c.cfg.Name {
			silent = fmt.Sprintf("waiting for %s to answer at %s", g.Name, g.Addr)
		}
	}
	for _, id := range sortedKeys(c.peers.conns) {
		if h := c.peers.conns[id].hello; h != nil && h.Cluster != "" {
			return fmt.Errorf("waiting to be let in by cluster %s", h.Cluster)
		}
	}
	sees := c.sees()
	switch {
	case c.cfg.Expect == 1 && !slices.ContainsFunc(c.peers.gossip, func(g Gateway) bool { return g.Alive && g.Name != c.cfg.Name }):
		return errors.New("waiting to be let in: the join list has led to no other gateway; if this one is to start a cluster, remove the list; if several are, give each bootstrap_expect, their number")
	case c.cfg.Expect == 1 && silent != "":
		return errors.New(silent)
	case c.cfg.Expect == 1:
		return errors.New("waiting to be let in: no gateway that answers has a cluster; if they are to start one, give each bootstrap_expect, their number")
	case there < c.cfg.Expect:
		return fmt.Errorf("waiting for %d gateways to start a cluster, this one and %d more are there%s", c.cfg.Expect, max(there-1, 0), others)
	}
	if sees == nil {
		return fmt.Errorf("%d gateways are there that start a cluster of %d: waiting for the first by name to start it, and let this one in", there, c.cfg.Expect)
	}
	for _, g := range c.peers.gossip {
		if !slices.Contains(sees, g.Name+"/"+g.Boot) || g.Name == c.cfg.Name {
			continue
		}
		id, connected := c.peers.named(g.Name)
		if !connected {
			return fmt.Errorf("waiting for %s to answer at %s", g.Name, g.Addr)
		}
		if h := c.peers.conns[id].hello; h == nil || !slices.Equal(h.Sees, sees) {
			return fmt.Errorf("waiting for %s to see the same %d gateways", g.Name, c.cfg.Expect)
		}
	}
	return errors.New("waiting for the other gateways")
}

// leaderless says what people can do where there is no leader.
func (c *Core) leaderless() error {
	var missing []string
	voters := c.conf.GetVoters()
	for _, id := range voters {
		if ID(id) != c.id && c.peers.conns[ID(id)] == nil {
			missing = append(missing, c.nameOf(ID(id)))
		}
	}
	slices.Sort(missing)
	seen, disk := len(voters)-len(missing), ""
	if typical := c.pace.typical(); typical > c.SlowFrom() {
		disk = fmt.Sprintf("; the disk of this gateway's data directory is slow: a write takes %v, and more than %v delays elections",
			typical.Round(time.Millisecond), c.SlowFrom())
	}
	if 2*seen > len(voters) {
		return fmt.Errorf("%w yet: %d of %d voters are seen, which is a majority%s", errNoLeader, seen, len(voters), disk)
	}
	return fmt.Errorf("%w: %d of %d voters are seen, and a majority must be: start %s again, or mend the network to them; "+
		"with a data_dir they go on when they return, without one all have to be restarted%s",
		errNoLeader, seen, len(voters), strings.Join(missing, " or "), disk)
}

// SlowFrom is how long a write may take before the disk is called slow: six of them take as long as an
// election may.
func (c *Core) SlowFrom() time.Duration { return c.lease() / 30 }

// tellVoters logs, at the leader, who votes and did not, or does not any more. A gateway that has lost its disk
// votes as another server, and still votes.
func (c *Core) tellVoters(before []uint64) {
	after := c.conf.GetVoters()
	var votes []string
	for _, id := range after {
		votes = append(votes, c.nameOf(ID(id)))
		if !slices.Contains(before, id) {
			c.log(slog.LevelInfo, "gateway votes from now on", slog.String("name", c.nameOf(ID(id))), slog.String("server", serverText(ID(id))))
		}
	}
	for _, id := range before {
		if name := c.nameOf(ID(id)); !slices.Contains(after, id) && !slices.Contains(votes, name) {
			c.log(slog.LevelInfo, "gateway no longer votes", slog.String("name", name), slog.String("server", serverText(ID(id))))
		}
	}
}
