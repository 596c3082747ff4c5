package membership

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/leader"
)

// reconciler starts a cluster, or keeps the view and raft's servers as discovery reports the
// gateways while this gateway leads. Its fields belong to the goroutine run.
type reconciler struct {
	*raftNode
	incarnation *incarnation
	peers       *peerClient
	leases      *leaseServer
	judge       *judge
	proposer    *proposer

	failed attempts
	unseen map[string]time.Time // since when gossip does not see it alive, by name
	// away are the raft servers that have no member, and since when.
	away   map[string]time.Time
	orphan time.Time // since when there is no leader
}

func newReconciler(n *raftNode, i *incarnation, peers *peerClient, leases *leaseServer, j *judge, p *proposer) *reconciler {
	return &reconciler{
		raftNode: n, incarnation: i, peers: peers, leases: leases, judge: j, proposer: p,
		failed: attempts{}, unseen: map[string]time.Time{}, away: map[string]time.Time{}, orphan: time.Now(),
	}
}

// run looks at the cluster whenever something changed, and now and then.
func (r *reconciler) run() {
	for {
		changed := r.Changed()
		if !r.pause(r.turn(), changed, r.config.Discovery.Changed()) {
			return
		}
	}
}

// turn does what is to be done now, and returns when to look again at the
// latest.
func (r *reconciler) turn() time.Duration {
	peers := r.config.Discovery.Members()
	r.addresses.note(peers)
	r.tuneRaft()
	now := time.Now()
	r.note(peers, now)
	if r.leaderID() != "" {
		r.orphan = time.Time{}
		if _, in := r.incarnation.in(r.View(), r.config.Name); in {
			r.setProblem(nil)
		}
	} else if r.orphan.IsZero() {
		r.orphan = now
	}
	switch {
	case r.leaving.Load():
		return lookAgain
	case r.leads():
		return r.lead(peers)
	case r.blank():
		if err := r.tryBootstrap(r.closing, peers); err != nil {
			r.stuck(err)
		}
		return 2 * soon
	case !r.orphan.IsZero():
		r.orphaned(peers)
	}
	return lookAgain
}

// note keeps since when gossip does not see gateways alive.
func (r *reconciler) note(peers []serfring.Member, now time.Time) {
	for _, p := range peers {
		if p.Status == serfring.StatusAlive {
			delete(r.unseen, p.Name)
		} else if _, ok := r.unseen[p.Name]; !ok {
			r.unseen[p.Name] = now
		}
	}
	for name := range r.unseen {
		if _, known := find(peers, name); !known {
			delete(r.unseen, name)
		}
	}
	for name := range r.failed {
		if p, known := find(peers, name); !known || p.Status != serfring.StatusAlive {
			delete(r.failed, name)
		}
	}
}

// stuck reports what keeps this gateway out, once it has lasted.
func (r *reconciler) stuck(err error) {
	r.setProblem(err)
	if time.Since(r.orphan) > 3*time.Second && r.once.First("stuck "+err.Error()) {
		r.config.Logger.Warn("not in a cluster yet", slog.String("reason", err.Error()))
	}
}

// orphaned reports that there is no leader, and why if that can be told.
func (r *reconciler) orphaned(peers []serfring.Member) {
	if time.Since(r.orphan) < 2*time.Second {
		return
	}
	own := r.storage.clusterID()
	ids := r.peers.identifyAll(r.closing, alive(peers))
	for name, id := range ids {
		if id.Cluster != "" && id.Cluster != own {
			r.stuck(fmt.Errorf("membership: this gateway belongs to cluster %s, %s to cluster %s: "+
				"if this one is to join, stop it and move its data_dir away", own, name, id.Cluster))
			return
		}
	}
	if err := r.roll.behind(); err != nil {
		r.stuck(fmt.Errorf("membership: no leader: %w", err))
		return
	}
	r.stuck(r.leaderless(ids))
}

// lead is the leader's turn.
func (r *reconciler) lead(peers []serfring.Member) time.Duration {
	again, err := r.reconcile(peers)
	if err != nil {
		r.troubled(err)
		return 2 * soon
	}
	return again
}

// reconcile brings the view and raft's configuration closer to what discovery
// reports.
func (r *reconciler) reconcile(peers []serfring.Member) (time.Duration, error) {
	if !r.leases.grantsIn(r.raft.CurrentTerm()) {
		return soon, nil // see takeLeads
	}
	again := lookAgain
	now := time.Now()
	retry, err := r.letInAll(r.joinCandidates(peers, now), now)
	if err != nil {
		return 0, err
	}
	again = min(again, retry)
	wait, err := r.reconcileVoters(peers)
	return min(again, wait), err
}

// reconcileVoters makes the next change of raft's configuration, if one is due.
func (r *reconciler) reconcileVoters(peers []serfring.Member) (time.Duration, error) {
	next := leader.NextStep(r.assessServers(peers))
	switch {
	case next.Do == leader.Nothing:
		return lookAgain, nil
	case next.Do == leader.Promote && !r.peers.caughtUp(peers, raft.ServerID(next.Server)):
		return soon, nil
	}
	r.ops.Lock()
	defer r.ops.Unlock()
	if r.leaving.Load() || leader.NextStep(r.assessServers(peers)) != next {
		return soon, nil
	}
	return 0, r.proposer.change(next)
}

// assessServers adds to what is known of raft's servers for how long they have been away.
func (r *reconciler) assessServers(peers []serfring.Member) []leader.Server {
	view, servers := r.View(), r.assess(peers)
	for i := range servers {
		s := &servers[i]
		name := nameOf(raft.ServerID(s.ID))
		if s.Node != 0 {
			delete(r.away, s.ID)
		}
		_, named := view.Named(name)
		_, seen := find(peers, name)
		since, unseen := r.unseen[name]
		s.Away = s.Node == 0 && !named && !s.Left && view.Awaits(name) && !r.longAway(s.ID, leader.AwayFor)
		s.Failed = !s.Leader && (s.Node == 0 && named || // it has a successor
			unseen && time.Since(since) > r.config.swapAfter || !seen && s.Node == 0 && r.longAway(s.ID, r.config.swapAfter))
	}
	return servers
}

// longAway notes that a raft server has no member, and reports whether that is
// so for longer than d.
func (r *reconciler) longAway(id string, d time.Duration) bool {
	since, noted := r.away[id]
	if !noted {
		since = time.Now()
		r.away[id] = since
	}
	return time.Since(since) > d
}
