package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
)

// loop is what the goroutine run keeps between its turns.
type loop struct {
	failed attempts
	unseen map[string]time.Time // since when gossip does not see it alive, by name
	// away are the raft servers that have no member, and since when.
	away   map[raft.ServerID]time.Time
	orphan time.Time // since when there is no leader
}

// soon is the pause before something that is about to be ready is tried again.
const soon = 50 * time.Millisecond

// run looks at the cluster whenever something changed, and now and then.
func (c *Cluster) run() {
	l := loop{failed: attempts{}, unseen: map[string]time.Time{}, away: map[raft.ServerID]time.Time{}, orphan: time.Now()}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := c.Changed()
		timer.Reset(c.turn(&l))
		select {
		case <-c.closing.Done():
			return
		case <-timer.C:
		case <-changed:
		case <-c.config.Discovery.Changed():
		}
	}
}

// turn does what is to be done now, and returns when to look again at the
// latest.
func (c *Cluster) turn(l *loop) time.Duration {
	peers := c.config.Discovery.Members()
	c.noteAddresses(peers)
	c.tuneRaft()
	now := time.Now()
	l.note(peers, now)
	if _, leader := c.raft.LeaderWithID(); leader != "" {
		l.orphan = time.Time{}
		if _, in := c.Self(); in {
			c.setProblem(nil)
		}
	} else if l.orphan.IsZero() {
		l.orphan = now
	}
	switch {
	case c.leaving.Load():
		return c.config.Interval
	case c.raft.State() == raft.Leader:
		return c.lead(l, peers)
	case c.blank():
		if err := c.tryBootstrap(c.closing, peers); err != nil {
			c.stuck(l, err)
		}
		return 2 * soon
	case !l.orphan.IsZero():
		c.orphaned(l, peers)
	}
	return c.config.Interval
}

// note keeps since when gossip does not see gateways alive.
func (l *loop) note(peers []serfring.Member, now time.Time) {
	for _, p := range peers {
		if p.Status == serfring.StatusAlive {
			delete(l.unseen, p.Name)
		} else if _, ok := l.unseen[p.Name]; !ok {
			l.unseen[p.Name] = now
		}
	}
	for name := range l.unseen {
		if _, known := find(peers, name); !known {
			delete(l.unseen, name)
		}
	}
	for name := range l.failed {
		if p, known := find(peers, name); !known || p.Status != serfring.StatusAlive {
			delete(l.failed, name)
		}
	}
}

// stuck reports what keeps this gateway out, once it has lasted.
func (c *Cluster) stuck(l *loop, err error) {
	c.setProblem(err)
	if time.Since(l.orphan) > 3*time.Second && c.once.First("stuck "+err.Error()) {
		c.config.Logger.Warn("not in a cluster yet", slog.String("reason", err.Error()))
	}
}

// orphaned reports that there is no leader, and why if that can be told.
func (c *Cluster) orphaned(l *loop, peers []serfring.Member) {
	if time.Since(l.orphan) < 2*time.Second {
		return
	}
	own := c.clusterID()
	for name, id := range c.identifyAll(c.closing, alive(peers)) {
		if id.Cluster != "" && id.Cluster != own {
			c.stuck(l, fmt.Errorf("membership: this gateway belongs to cluster %s, %s to cluster %s: "+
				"if this one is to join, stop it and move its data_dir away", own, name, id.Cluster))
			return
		}
	}
	if err := c.behind(); err != nil {
		c.stuck(l, fmt.Errorf("membership: no leader: %w", err))
		return
	}
	voters, here := 0, 0
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		name := nameOf(s.ID)
		if p, ok := find(peers, name); name == c.config.Name || ok && p.Status == serfring.StatusAlive {
			here++
		}
	}
	c.stuck(l, fmt.Errorf("membership: no leader: %d of %d voters are seen and a majority must be there; "+
		"gateways with a data_dir go on when they return, a cluster that lost its majority without must be restarted%s", here, voters, c.slowDisk()))
}

// lead is the leader's turn.
func (c *Cluster) lead(l *loop, peers []serfring.Member) time.Duration {
	again, err := c.reconcile(l, peers)
	if err != nil {
		c.troubled(err)
		return 2 * soon
	}
	return again
}

// troubled says, once, what keeps a leader from its work.
func (c *Cluster) troubled(err error) {
	if !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, raft.ErrLeadershipLost) &&
		!errors.Is(err, raft.ErrRaftShutdown) && c.once.First("reconcile "+err.Error()) {
		c.config.Logger.Warn("the view or the voters could not be updated: trying again", slog.Any("error", err))
	}
}

// reconcile brings the view and raft's configuration closer to what discovery
// reports.
func (c *Cluster) reconcile(l *loop, peers []serfring.Member) (time.Duration, error) {
	if !c.leases.leads(c.raft.CurrentTerm()) {
		return soon, nil // see takeLeads
	}
	again := c.config.Interval
	now := time.Now()
	retry, err := c.letInAll(l, c.joinCandidates(l, peers, now), now)
	if err != nil {
		return 0, err
	}
	again = min(again, retry)
	wait, err := c.reconcileVoters(l, peers)
	return min(again, wait), err
}

// takeLeads takes the lead whenever raft gives it, and gives it up when raft takes it
// away. It waits for nobody but a majority: no lease is renewed in between.
func (c *Cluster) takeLeads() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause := c.config.Interval // raft tells when that ends
		switch {
		case c.raft.State() != raft.Leader:
			c.leases.end()
		case !c.leaving.Load() && !c.leases.leads(c.raft.CurrentTerm()):
			if err := c.takeLead(); err != nil {
				c.troubled(err)
			} else {
				c.machine.touch()
			}
			fallthrough
		default:
			pause = soon // a voter may depose it by an error
		}
		timer.Reset(pause)
		select {
		case <-c.closing.Done():
			return
		case <-c.raft.LeaderCh():
		case <-timer.C:
		}
	}
}

// takeLead makes sure that this gateway has seen what the leaders before it have
// committed: only then it may judge others.
func (c *Cluster) takeLead() error {
	term := c.raft.CurrentTerm()
	if err := c.raft.Barrier(c.config.CallTimeout).Error(); err != nil {
		return err
	}
	if c.View().Cluster == "" {
		if err := c.applyHere(command{Found: &foundCommand{Cluster: c.clusterID(), Lease: c.config.Lease, At: time.Now().UnixMilli()}}); err != nil {
			return err
		}
	}
	_ = c.raft.Barrier(c.config.CallTimeout) // tells the others what is committed
	c.leases.begin(term)
	c.config.Logger.Info("leading", slog.Uint64("term", term))
	return nil
}

// reconcileVoters makes the next change of raft's configuration, if one is due.
func (c *Cluster) reconcileVoters(l *loop, peers []serfring.Member) (time.Duration, error) {
	next := nextStep(c.assessServers(l, peers))
	switch {
	case next.do == nothing:
		return c.config.Interval, nil
	case next.do == promote && !c.caughtUp(peers, next.server):
		return soon, nil
	}
	c.ops.Lock()
	defer c.ops.Unlock()
	if c.leaving.Load() || nextStep(c.assessServers(l, peers)) != next {
		return soon, nil
	}
	return 0, c.change(next)
}

// assessServers describes raft's servers for nextStep.
func (c *Cluster) assessServers(l *loop, peers []serfring.Member) []server {
	view := c.View()
	members := make(map[string]Member, len(view.Members))
	for _, m := range view.Members {
		members[m.Server] = m
	}
	var servers []server
	for _, s := range c.servers() {
		name := nameOf(s.ID)
		p, seen := find(peers, name)
		m, in := members[string(s.ID)]
		now := server{id: s.ID, voter: s.Suffrage == raft.Voter, node: m.Node}
		now.leader = string(s.ID) == c.storage.meta.Server
		here := seen && p.Status == serfring.StatusAlive
		_, named := view.Named(name)
		now.alive = now.leader || here && (m.Boot == p.Boot || !named)
		now.pending = !in && !named && here
		left := seen && p.Status == serfring.StatusLeft
		now.away = !in && !named && !left && view.lostName(name) && !l.longAway(s.ID, c.config.CleanAfter)
		if in {
			delete(l.away, s.ID)
		}
		since, unseen := l.unseen[name]
		now.failed = !now.leader && unseen && time.Since(since) > c.config.SwapAfter
		servers = append(servers, now)
	}
	return servers
}

// longAway notes that a raft server has no member, and reports whether that is
// so for longer than d.
func (l *loop) longAway(id raft.ServerID, d time.Duration) bool {
	since, noted := l.away[id]
	if !noted {
		since = time.Now()
		l.away[id] = since
	}
	return time.Since(since) > d
}

// caughtUp asks a server whether it has the log, so that a vote is not given
// to one whose silence would stop the cluster.
func (c *Cluster) caughtUp(peers []serfring.Member, id raft.ServerID) bool {
	p, ok := find(peers, nameOf(id))
	if !ok {
		return false
	}
	committed := c.raft.CommitIndex()
	said, err := c.identify(c.closing, p.PeerAddr)
	return err == nil && said.Server == string(id) && said.Last >= committed && !said.Leaving
}

// change carries out one step. The caller holds ops.
func (c *Cluster) change(s step) error {
	var future raft.IndexFuture
	switch s.do {
	case promote:
		var addr raft.ServerAddress
		for _, have := range c.servers() {
			if have.ID == s.server {
				addr = have.Address
			}
		}
		if addr == "" {
			return fmt.Errorf("membership: %s is no raft server", s.server)
		}
		future = c.raft.AddVoter(s.server, addr, 0, c.config.CallTimeout)
	case demote:
		future = c.raft.DemoteVoter(s.server, 0, c.config.CallTimeout)
	case remove:
		future = c.raft.RemoveServer(s.server, 0, c.config.CallTimeout)
	case nothing:
		return nil
	default:
		return fmt.Errorf("membership: unknown step %q", s.do)
	}
	if err := future.Error(); err != nil {
		return fmt.Errorf("membership: %s raft server %s: %w", s.do, s.server, err)
	}
	c.config.Logger.Info("raft servers changed", slog.String("change", string(s.do)), slog.String("server", string(s.server)))
	return nil
}

func alive(peers []serfring.Member) []serfring.Member {
	living := make([]serfring.Member, 0, len(peers))
	for _, p := range peers {
		if p.Status == serfring.StatusAlive {
			living = append(living, p)
		}
	}
	return living
}

func find(peers []serfring.Member, name string) (serfring.Member, bool) {
	for _, p := range peers {
		if p.Name == name {
			return p, true
		}
	}
	return serfring.Member{}, false
}
