package membership

import (
	"cmp"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/kmutex"
)

// maxVoters is the largest number of gateways that vote; the others follow.
const maxVoters = 5

// voterTarget returns how many of n members should vote: an odd number, since
// an even one needs one more to agree and tolerates no more losses.
func voterTarget(n int) int {
	n = min(n, maxVoters)
	if n%2 == 0 {
		n--
	}
	return max(n, 1)
}

// server is one raft server as the leader judges it.
type server struct {
	id    raft.ServerID
	voter bool
	// node is its member's in the view; 0: not (or no longer) a member.
	node kmutex.Node
	// pending: not a member yet, but about to be.
	pending bool
	// away: its member was lost not long ago and may come back: it still counts as
	// one, so that the others keep their votes.
	away bool
	// alive: nobody suspects it at the moment.
	alive bool
	// failed: gossip has not seen it alive for so long that its vote should go to another.
	failed bool
	// leader is this gateway.
	leader bool
}

// doing is what can be done to a raft server.
type doing string

const (
	nothing doing = ""
	promote doing = "promote"
	demote  doing = "demote"
	remove  doing = "remove"
)

// step is one change of raft's configuration.
type step struct {
	do     doing
	server raft.ServerID
}

// nextStep returns the change that the configuration needs most, out of those
// that the living voters can commit.
func nextStep(servers []server) step {
	servers = slices.Clone(servers)
	// Oldest members first: they vote rather than the younger ones.
	slices.SortStableFunc(servers, func(a, b server) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id))
	})
	members := 0
	for _, s := range servers {
		if s.node != 0 || s.away {
			members++
		}
	}
	for _, s := range servers {
		if s.node == 0 && !s.pending && !s.away && !s.leader && committable(servers, step{remove, s.id}) {
			return step{remove, s.id}
		}
	}
	target := voterTarget(members)
	voters, failed := 0, 0
	for _, s := range servers {
		if s.voter {
			voters++
			if s.failed {
				failed++
			}
		}
	}
	if voters < target || voters == target && failed > 0 {
		for _, s := range servers {
			if !s.voter && s.alive && s.node != 0 && committable(servers, step{promote, s.id}) {
				return step{promote, s.id}
			}
		}
	}
	if voters > target {
		return firstToDemote(servers)
	}
	return step{}
}

// firstToDemote prefers voters that have failed, then suspected ones, then young ones.
func firstToDemote(servers []server) step {
	rank := func(s server) int {
		switch {
		case s.failed:
			return 0
		case !s.alive:
			return 1
		default:
			return 2
		}
	}
	candidates := slices.Clone(servers)
	slices.Reverse(candidates)
	slices.SortStableFunc(candidates, func(a, b server) int { return cmp.Compare(rank(a), rank(b)) })
	for _, s := range candidates {
		// One that is not a member yet was started as a voter and joins soon.
		if s.voter && !s.leader && !s.pending && committable(servers, step{demote, s.id}) {
			return step{demote, s.id}
		}
	}
	return step{}
}

// committable is the minimum-quorum guard: raft commits a change by the
// configuration that it leads to, so a majority of those voters must be alive.
func committable(servers []server, change step) bool {
	voters, alive := 0, 0
	for _, s := range servers {
		votes := s.voter
		if s.id == change.server {
			votes = change.do == promote
		}
		if votes {
			voters++
			if s.alive {
				alive++
			}
		}
	}
	return alive > voters/2
}
