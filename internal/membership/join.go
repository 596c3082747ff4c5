package membership

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/chordring/serfring"
	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// attempts remembers which gateways did not answer, so that one that is out of
// reach does not delay the others.
type attempts map[string]attempt

type attempt struct {
	boot string
	next time.Time
	wait time.Duration
}

func (a attempts) due(p serfring.Member, now time.Time) bool {
	last, ok := a[p.Name]
	return !ok || last.boot != p.Boot || !now.Before(last.next)
}

func (a attempts) failed(p serfring.Member, now time.Time) {
	wait := 200 * time.Millisecond
	if last := a[p.Name]; last.boot == p.Boot {
		wait = min(2*max(last.wait, wait/2), 5*time.Second)
	}
	a[p.Name] = attempt{p.Boot, now.Add(wait), wait}
}

// joinCandidates returns the gateways that are alive and not, or not as they are,
// in the view or in raft's configuration.
func (r *reconciler) joinCandidates(peers []serfring.Member, now time.Time) []serfring.Member {
	view := r.View()
	there := make(map[raft.ServerID]bool)
	for _, s := range r.servers() {
		there[s.ID] = true
	}
	var candidates []serfring.Member
	for _, p := range alive(peers) {
		m, in := view.Named(p.Name)
		settled := view.LostBoot(p.Name, p.Boot) || in && m.Boot == p.Boot && m.PeerAddr == p.PeerAddr && there[raft.ServerID(m.Server)]
		if !settled && r.failed.due(p, now) {
			candidates = append(candidates, p)
		}
	}
	return candidates
}

// acceptable judges what a gateway said about itself. Gossip may be old: what
// counts is what the gateway says.
func (r *reconciler) acceptable(p serfring.Member, id identity) bool {
	if id.Leaving || id.Bootstrapping || id.Boot != p.Boot || id.Server == "" || nameOf(raft.ServerID(id.Server)) != p.Name {
		return false
	}
	if strings.ContainsFunc(p.Name+p.PeerAddr+p.Boot, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return false // people see these words in their terminals
	}
	if own := r.storage.clusterID(); id.Cluster != "" && id.Cluster != own {
		if r.once.First("foreign " + p.Name) {
			r.config.Logger.Warn("a gateway of another cluster is not let in", slog.String("name", p.Name),
				slog.String("peer_address", p.PeerAddr), slog.String("cluster", id.Cluster), slog.String("own_cluster", own),
				slog.String("hint", "to let it join, stop it and move its data_dir away; to keep it apart, take it off the join list"))
		}
		return false
	}
	return true
}

// candidate is a gateway that wants to join, and what it answered.
type candidate struct {
	peer serfring.Member
	id   identity
	// answered: it said who it is, and whom it does not reach.
	answered  bool
	unreached []string
}

// letInAll lets in those of the candidates that may come, each as soon as it has
// answered: one that cannot be reached does not hold up the others. It returns when
// to try again.
func (r *reconciler) letInAll(candidates []serfring.Member, now time.Time) (time.Duration, error) {
	answers := make(chan candidate, len(candidates))
	slots := make(chan struct{}, asksAtOnce)
	for _, p := range candidates {
		r.wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers <- r.askCandidate(p)
		})
	}
	again := lookAgain
	var failed error
	for range candidates {
		switch v := <-answers; {
		case failed != nil: // all have to end
		case !v.answered || !r.acceptable(v.peer, v.id):
			r.failed.failed(v.peer, now)
			again = min(again, r.failed[v.peer.Name].wait)
		case !r.mayJoin(v):
			again = min(again, 4*soon)
			failed = r.takeBack(v.peer, v.id)
		default:
			failed = r.letIn(v.peer, v.id)
			delete(r.failed, v.peer.Name)
		}
	}
	return again, failed
}

// askCandidate asks a gateway who it is, and whom it does not reach.
func (r *reconciler) askCandidate(p serfring.Member) candidate {
	v := candidate{peer: p}
	v.id, v.answered = r.peers.identifyAll(r.closing, []serfring.Member{p})[p.Name]
	waits := true
	r.leases.withRules(func(rules *leader.Rules, now time.Duration) { waits = rules.Waits(p.Name, now) })
	if v.answered && !waits {
		v.unreached, v.answered = r.peers.unreachedFrom(p)
	}
	if v.id.Witness { // it needs no links but to the leader
		v.unreached = slices.DeleteFunc(v.unreached, func(name string) bool { return name != r.config.Name })
	}
	return v
}

// mayJoin reports that a gateway may come in, as the leader's rules see it.
func (r *reconciler) mayJoin(v candidate) bool {
	name := v.peer.Name
	if m, in := r.View().Named(name); in && m.Boot == v.peer.Boot {
		return true // only its address is another
	}
	waits, obstacle, seen := true, "", r.judge.observe()
	r.leases.withRules(func(rules *leader.Rules, now time.Duration) {
		if waits = rules.Waits(name, now); !waits {
			obstacle = rules.LetIn(name, v.unreached, seen, now)
		}
	})
	switch {
	case waits:
		return false
	case obstacle == "":
		r.peers.silent.over("reach " + name)
		return true
	case r.peers.silent.lasts("reach "+name) && r.once.First("reach "+name):
		r.config.Logger.Warn("a gateway is not let in because it does not reach a member",
			slog.String("name", name), slog.String("member", obstacle),
			slog.String("hint", "every gateway must reach the peer port of every other"))
	}
	return false
}

// takeBack ends the lease of the incarnation before, if a gateway says that nothing of
// it is in flight: what it had does not have to wait until the gateway may come in.
func (r *reconciler) takeBack(p serfring.Member, id identity) error {
	if l, lost := r.View().LostMember(id.Voided); !lost || !l.Leased || l.Name != p.Name {
		return nil
	}
	return r.proposer.applyHere(views.Command{Expire: &views.Expire{Nodes: []kmutex.Node{id.Voided}}})
}

// letIn makes a gateway a raft server without a vote, if it is none yet, and
// then a member. The address of one that returned elsewhere is not corrected
// in raft's configuration: ServerAddr knows it from gossip.
func (r *reconciler) letIn(p serfring.Member, id identity) error {
	r.ops.Lock()
	defer r.ops.Unlock()
	there := slices.ContainsFunc(r.servers(), func(s raft.Server) bool { return string(s.ID) == id.Server })
	if !there {
		add := r.raft.AddNonvoter(raft.ServerID(id.Server), address(p.PeerAddr, id.Server), 0, r.callTimeout())
		if err := add.Error(); err != nil {
			return fmt.Errorf("membership: add raft server %s: %w", id.Server, err)
		}
	}
	join := views.Join{Name: p.Name, Boot: p.Boot, PeerAddr: p.PeerAddr, Server: id.Server, Voided: id.Voided, Witness: id.Witness}
	if err := r.proposer.applyHere(views.Command{Join: &join}); err != nil {
		return err
	}
	r.config.Logger.Debug("let a gateway in", slog.String("name", p.Name), slog.String("peer_address", p.PeerAddr), slog.String("boot", p.Boot))
	return nil
}
