package membership

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/peercall"
	"github.com/kgate/kgate/kmutex"
)

// judge carries out what the leader's rules say.
type judge struct {
	*raftNode
	incarnation *incarnation
	peers       *peerClient
	prober      *prober
	leases      *leaseServer
	proposer    *proposer
	outsiders   outsiders
}

// watch probes the members that may be unreachable, and as the leader acts upon what
// is known of all members. A gateway that does not lead and has all its links has
// nothing to do.
func (j *judge) watch() {
	for {
		changed := j.Changed() // the lead, too
		now := time.Now()
		doubts := j.prober.watchLinks(now, j.quiet())
		j.watchOutsiders(now)
		leads := j.leads()
		pause := leader.Interval
		if !leads && !doubts {
			pause = lookAgain
		}
		if !j.pause(pause, changed, j.config.Links.LinksChanged()) {
			return
		}
		if !leads || j.leaving.Load() {
			continue
		}
		if err := j.judge(); err != nil && !notLeading(err) && j.once.First("judge "+err.Error()) {
			j.config.Logger.Warn("a gateway could not be suspended, or its lease not ended: trying again", slog.Any("error", err))
		}
	}
}

// quiet returns the other members that have not renewed for a while, if this gateway leads.
func (j *judge) quiet() (nodes []kmutex.Node) {
	self, _ := j.incarnation.in(j.View(), j.config.Name)
	j.leases.withRules(func(r *leader.Rules, now time.Duration) { nodes = r.Quiet(now) })
	return slices.DeleteFunc(nodes, func(n kmutex.Node) bool { return n == self })
}

// judge is the leader's turn.
func (j *judge) judge() error {
	var verdict leader.Verdict
	seen := j.observe()
	j.leases.withRules(func(r *leader.Rules, now time.Duration) { verdict = r.Judge(seen, now) })
	return j.carryOut(verdict)
}

// carryOut does what the leader's rules say. All suspicions of the moment go into one
// command, if they have room in it. A leader that cannot commit suspends nobody.
func (j *judge) carryOut(verdict leader.Verdict) error {
	for batch := range slices.Chunk(verdict.Suspend, maxSuspects) {
		var suspend views.Suspend
		for _, s := range batch {
			suspend.Nodes = append(suspend.Nodes, s.Node)
			suspend.Reasons = append(suspend.Reasons, views.CutReason(s.Text(j.config.Name)))
		}
		if err := j.proposer.commit(views.Command{Suspend: &suspend}); err != nil {
			return err
		}
		for i, s := range batch {
			// At debug: every gateway logs the view without it.
			j.config.Logger.Debug("gateway suspended", slog.String("name", s.Name), slog.Uint64("node", uint64(s.Node)), slog.String("reason", suspend.Reasons[i]))
		}
	}
	for nodes := range slices.Chunk(verdict.Expire, maxNodes) {
		if err := j.proposer.applyHere(views.Command{Expire: &views.Expire{Nodes: nodes}}); err != nil {
			return err
		}
	}
	for _, back := range verdict.Return {
		for nodes := range slices.Chunk(back.Nodes, maxNodes) {
			if err := j.proposer.applyHere(views.Command{Return: &views.Return{Pool: back.Pool, Nodes: nodes}}); err != nil {
				return err
			}
		}
	}
	if verdict.HandOver {
		return j.resign()
	}
	return nil
}

// maxNodes is how many nodes one command names at most, and maxSuspects how many with
// a reason for each: the longest of them have room in views.MaxCommand.
const (
	maxNodes    = 512
	maxSuspects = 56
)

// resign hands the lead over, since the members or the voters do not get through to
// this gateway.
func (j *judge) resign() error {
	j.leases.withRules(func(r *leader.Rules, now time.Duration) { r.HandedOver(now) })
	j.config.Logger.Warn("handing leadership over: gateways that are alive cannot reach this one, or the voters cannot")
	ctx, cancel := context.WithTimeout(j.closing, j.callTimeout())
	defer cancel()
	return j.proposer.handOverOnce(ctx)
}

// observe returns what this gateway sees for itself.
func (j *judge) observe() leader.Observation {
	s := leader.Observation{Self: j.config.Name, Boots: make(map[string]string), Unreachable: make(map[kmutex.Node]time.Duration), Outsiders: j.outsiders.get()}
	for _, p := range alive(j.config.Discovery.Members()) {
		s.Boots[p.Name] = p.Boot
	}
	for node, since := range j.prober.unreachable() {
		s.Unreachable[node] = j.incarnation.at(since)
	}
	return s
}

// takeLeads takes the lead whenever raft gives it, and gives it up when raft takes it
// away. It waits for nobody but a majority: no lease is renewed in between.
func (j *judge) takeLeads() {
	for {
		changed := j.Changed() // the lead; or a voter may depose it by an error
		pause := lookAgain
		switch {
		case !j.leads():
			j.leases.end()
		case !j.leaving.Load() && !j.leases.grantsIn(j.raft.CurrentTerm()):
			if err := j.takeLead(); err != nil {
				j.troubled(err)
				pause = soon
			} else {
				j.machine.touch()
			}
		}
		if !j.pause(pause, changed, nil) {
			return
		}
	}
}

// takeLead makes sure that this gateway has seen what the leaders before it have
// committed: only then it may judge others.
func (j *judge) takeLead() error {
	term := j.raft.CurrentTerm()
	if err := j.committed(j.raft.Barrier(j.callTimeout())); err != nil {
		return err
	}
	if j.View().Cluster == "" {
		if err := j.proposer.applyHere(views.Command{Found: &views.Found{Cluster: j.storage.clusterID(), Lease: j.config.Lease, At: time.Now().UnixMilli()}}); err != nil {
			return err
		}
	}
	j.leases.begin(term)
	j.raft.Barrier(j.callTimeout()) // tells the others what is committed; no lease waits for it
	j.config.Logger.Info("leading", slog.Uint64("term", term))
	return nil
}

// outsiders are the gateways that are no members, that gossip sees alive, and that answer
// another member, if there is one, and not this leader.
type outsiders struct {
	mu     sync.Mutex
	next   time.Time // when to look again
	asking bool
	names  []string
}

// maxOutsiders bounds how many gateways one look tries.
const maxOutsiders = 16

func (o *outsiders) get() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.names)
}

// begin reports whether it is time to look. The caller calls end when it has.
func (o *outsiders) begin(now time.Time, pause time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking || now.Before(o.next) {
		return false
	}
	o.asking, o.next = true, now.Add(pause)
	return true
}

func (o *outsiders) end(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking, o.names = false, names
}

// watchOutsiders looks, as the leader, for gateways that another leader could let in.
// One of them is no reason to hand the lead over, so it looks for two.
func (j *judge) watchOutsiders(now time.Time) {
	if !j.outsiders.begin(now, j.lease()/6) {
		return
	}
	var outsiders []serfring.Member
	if view := j.View(); j.leads() && len(j.voters()) > 1 {
		for _, p := range alive(j.config.Discovery.Members()) {
			if m, in := view.Named(p.Name); (!in || m.Boot != p.Boot) && p.Name != j.config.Name && len(outsiders) < maxOutsiders {
				outsiders = append(outsiders, p)
			}
		}
	}
	if len(outsiders) < 2 {
		j.outsiders.end(nil)
		return
	}
	j.wg.Go(func() { j.outsiders.end(j.unreachedOutsiders(outsiders)) })
}

// unreachedOutsiders returns those of the outsiders that do not answer here and answer a member
// that is chosen at random. A leader that is the only member has nobody to ask.
func (j *judge) unreachedOutsiders(outsiders []serfring.Member) []string {
	members := slices.DeleteFunc(slices.Clone(j.View().Members), func(m Member) bool { return m.Name == j.config.Name })
	reached := func(string) bool { return true }
	if len(members) > 0 {
		other := members[rand.IntN(len(members))] //nolint:gosec // no secret
		reached = func(name string) bool { return name != other.Name && j.peers.reachedFrom(other, name) }
	}
	var mu sync.Mutex
	var names []string
	peercall.Each(outsiders, asksAtOnce, func(_ int, p serfring.Member) {
		if j.peers.passes(j.closing, p.PeerAddr) || !reached(p.Name) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		names = append(names, p.Name)
	})
	return names
}
