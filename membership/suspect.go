package membership

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/membership/lease"
)

// Why a member is suspended.
const (
	becauseGone   = "its link is down and its peer port does not answer"
	becauseSilent = "gossip sees it failed and it does not renew its lease"
	becauseApart  = "its link to another member stays down while both renew"
	becauseBehind = "it renews its lease and does not follow the views"
)

// watch collects evidence, and as the leader acts upon it: it suspends members,
// and takes back what lost ones owe.
func (c *Cluster) watch() {
	ticker := time.NewTicker(soon)
	defer ticker.Stop()
	for {
		select {
		case <-c.closing.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		c.watchLinks(now)
		if c.leaving.Load() {
			continue
		}
		if err := c.judge(now); err != nil && !notLeading(err) && c.once.First("judge "+err.Error()) {
			c.config.Logger.Warn("a suspicion could not be acted upon, trying again", slog.Any("error", err))
		}
	}
}

func notLeading(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrRaftShutdown)
}

// judge is the leader's turn: all suspicions of the moment go into one command.
// A leader that cannot commit suspends nobody.
func (c *Cluster) judge(now time.Time) error {
	suspects := c.grants.suspects(now)
	if len(suspects) > 0 {
		nodes := make([]kmutex.Node, 0, len(suspects))
		for _, s := range suspects {
			nodes = append(nodes, s.Node)
			c.config.Logger.Warn("gateway suspended", slog.String("name", s.Name), slog.Uint64("node", uint64(s.Node)), slog.String("reason", s.reason))
		}
		if err := c.applyHere(command{Suspend: &suspendCommand{Nodes: nodes}}); err != nil {
			return err
		}
		for _, s := range suspects {
			if s.reason == becauseApart {
				c.penance.add(s.Name, now)
			}
		}
	}
	if expired := c.grants.expired(); len(expired) > 0 {
		if err := c.applyHere(command{Expire: &expireCommand{Nodes: expired}}); err != nil {
			return err
		}
	}
	for _, back := range c.grants.due() {
		if err := c.applyHere(command{Return: &back}); err != nil {
			return err
		}
	}
	return nil
}

// suspect is a member that is to be suspended.
type suspect struct {
	Member
	reason string
}

// suspects returns the members that are to be suspended now, by Node.
func (g *grants) suspects(now time.Time) []suspect {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return nil
	}
	g.follow()
	v, clock := g.c.View(), g.c.tenure.clock()
	var suspects []suspect
	take := func(node kmutex.Node, reason string) {
		m, in := v.Member(node)
		if in && !slices.ContainsFunc(suspects, func(s suspect) bool { return s.Node == node }) {
			suspects = append(suspects, suspect{m, reason})
		}
	}
	for node, since := range g.c.evidence.gone() {
		// A renewal that came after the first of the dials speaks against it.
		heard, ever := g.grantor.Heard(node)
		if !ever || clock-heard > now.Sub(since) {
			take(node, becauseGone)
		}
	}
	for _, node := range g.grantor.Silent(clock, v.Lease/2) {
		if m, in := v.Member(node); in && g.c.failed(m) {
			take(node, becauseSilent)
		}
	}
	if clock-g.viewed > v.Lease/2 {
		// Whoever does not take part in forming an epoch keeps all from it.
		for node, r := range g.reports {
			if r.view < v.Number && r.at > g.viewed+v.Lease/4 {
				take(node, becauseBehind)
			}
		}
	}
	for _, node := range apart(g.links(v, clock)) {
		take(node, becauseApart)
	}
	slices.SortFunc(suspects, func(a, b suspect) int { return cmp.Compare(a.Node, b.Node) })
	return suspects
}

// failed reports that gossip has given the member up, or knows nothing of it.
func (c *Cluster) failed(m Member) bool {
	p, seen := find(c.config.Discovery.Members(), m.Name)
	return !seen || p.Status != serfring.StatusAlive
}

// links returns the newest complaints of the members that renew. The caller
// holds mu.
func (g *grants) links(v *View, clock time.Duration) map[kmutex.Node][]kmutex.Node {
	fresh := 2 * lease.Terms{Lease: v.Lease}.Interval()
	down := make(map[kmutex.Node][]kmutex.Node)
	for node, r := range g.reports {
		if clock-r.at <= fresh {
			down[node] = r.down
		}
	}
	return down
}

// apart returns whom to suspend so that those left have links to each other: as
// long as two complain about each other, the one in most such pairs goes, of
// equal ones the youngest. A complaint of one end alone is none.
func apart(down map[kmutex.Node][]kmutex.Node) []kmutex.Node {
	pairs := make(map[kmutex.Node]map[kmutex.Node]bool)
	for a, complaints := range down {
		for _, b := range complaints {
			if a != b && slices.Contains(down[b], a) {
				if pairs[a] == nil {
					pairs[a] = make(map[kmutex.Node]bool)
				}
				pairs[a][b] = true
			}
		}
	}
	var out []kmutex.Node
	for {
		var worst kmutex.Node
		most := 0
		for node, with := range pairs {
			if n := len(with); n > most || n == most && n > 0 && node > worst {
				worst, most = node, n
			}
		}
		if most == 0 {
			slices.Sort(out)
			return out
		}
		out = append(out, worst)
		for other := range pairs[worst] {
			delete(pairs[other], worst)
		}
		delete(pairs, worst)
	}
}

// expired returns the lost members whose leases have provably run out.
func (g *grants) expired() []kmutex.Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return nil
	}
	g.follow()
	clock := g.c.tenure.clock()
	var nodes []kmutex.Node
	for _, node := range g.c.View().leased() {
		if g.grantor.Expired(node, clock) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// due returns what pools get back that reclaim by the longest hold. It is
// counted from the suspension, or from the moment this leader began to lead.
func (g *grants) due() []returnCommand {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading() {
		return nil
	}
	g.follow()
	v, clock := g.c.View(), g.c.tenure.clock()
	var due []returnCommand
	for _, p := range v.Pools {
		if p.Reclaim != ReclaimHold {
			continue
		}
		var nodes []kmutex.Node
		for _, node := range p.Owed {
			l, _ := v.Gone(node)
			if at, seen := g.lost[node]; seen && clock-at >= p.HoldMax && !l.Leased {
				nodes = append(nodes, node)
			}
		}
		if len(nodes) > 0 {
			due = append(due, returnCommand{Pool: p.Name, Nodes: nodes})
		}
	}
	return due
}

// penance keeps gateways out for a while whose links did not hold, longer each
// time that it happens again soon.
type penance struct {
	mu   sync.Mutex
	dues map[string]penalty
}

type penalty struct {
	wait  time.Duration
	until time.Time
}

const (
	shortPenance = time.Second
	longPenance  = time.Minute
)

func (p *penance) add(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, again := p.dues[name]
	wait := shortPenance
	if again && now.Sub(last.until) < 4*last.wait {
		wait = min(2*last.wait, longPenance)
	}
	if p.dues == nil || len(p.dues) >= MaxMembers {
		p.dues = make(map[string]penalty)
	}
	p.dues[name] = penalty{wait: wait, until: now.Add(wait)}
}

// over reports that the gateway may be let in.
func (p *penance) over(name string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.dues[name].until)
}
