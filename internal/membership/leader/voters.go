package leader

import (
	"cmp"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
)

const (
	// maxVoters is the largest number of gateways that vote; the others follow.
	maxVoters = 5
	// leastVoters is how many votes there stay once there are as many, until people take a
	// gateway out. With fewer, the return of a lost voter could not make up for the next loss.
	leastVoters = 3
	// SwapAfter is how long a voter has not been alive when another takes its vote.
	SwapAfter = 3 * time.Second
	// AwayFor is how long a lost gateway still counts when it is decided how many vote, and
	// how long its raft server is kept if it has no vote.
	AwayFor = time.Minute
)

// VoterTarget returns how many of n members should vote: an odd number, since
// an even one needs one more to agree and tolerates no more losses.
func VoterTarget(n int) int {
	n = min(n, maxVoters)
	if n%2 == 0 {
		n--
	}
	return max(n, 1)
}

// Server is one raft server as the leader judges it.
type Server struct {
	ID    string
	Voter bool
	// Leader is this gateway.
	Leader bool
	// Node is its member's in the view; 0: not (or no longer) a member.
	Node kmutex.Node
	// Alive: it answers the leader, so it can take part in a change.
	Alive bool
	// Failed: it has not been alive for [SwapAfter], or has a successor of the same name.
	Failed bool

	// What follows is of servers without a member. One with nothing of it was lost long ago,
	// or has a successor of the same name.

	// Pending: not a member yet, but about to be.
	Pending bool
	// Away: its member was lost no longer than [AwayFor] ago and may come back: it still
	// counts as one, so that the others keep their votes.
	Away bool
	// Left: it was stopped in order, or never was a member. Its vote ends with it.
	Left bool
}

// gone reports that nothing but its vote speaks for the server.
func (s Server) gone() bool { return s.Node == 0 && !s.Pending && !s.Away && !s.Leader }

// Doing is what can be done to a raft server.
type Doing string

// What can be done.
const (
	Nothing Doing = ""
	Promote Doing = "promote"
	Demote  Doing = "demote"
	Remove  Doing = "remove"
)

// Step is one change of raft's configuration.
type Step struct {
	Do     Doing
	Server string
}

// NextStep returns the change that the configuration needs most, out of those
// that the living voters can commit.
func NextStep(servers []Server) Step {
	servers = slices.Clone(servers)
	// Oldest members first: they vote rather than the younger ones.
	slices.SortStableFunc(servers, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	members, able, voters, stay, failed := 0, 0, 0, 0, 0
	for _, s := range servers {
		if s.Node != 0 || s.Away {
			members++
		}
		if s.Voter || s.Alive && s.Node != 0 {
			able++
		}
		if !s.Voter {
			continue
		}
		voters++
		if !s.Left {
			stay++
		}
		if s.Failed {
			failed++
		}
	}
	target := VoterTarget(members)
	if able >= leastVoters {
		// No more than there are to vote: an even number would be worth nothing, and who has failed
		// would keep its vote.
		target = VoterTarget(min(members, able))
	}
	if stay >= leastVoters {
		target = max(target, leastVoters)
	}
	for _, s := range servers {
		if s.gone() && (!s.Voter || s.Left) {
			if step := TakeOut(servers, s.ID); step.Do != Nothing {
				return step
			}
		}
	}
	for _, s := range servers {
		if s.gone() && s.Voter && voters > target && committable(servers, Step{Remove, s.ID}) {
			return Step{Remove, s.ID}
		}
	}
	if voters < target || voters == target && failed > 0 {
		for _, s := range servers {
			if !s.Voter && s.Alive && s.Node != 0 && committable(servers, Step{Promote, s.ID}) {
				return Step{Promote, s.ID}
			}
		}
	}
	if voters > target {
		return firstToDemote(servers)
	}
	return Step{}
}

// TakeOut returns the next step to take a server out that people have taken out of the view,
// or stop in order. Where the others could not go on without its vote because some of them are
// lost, these lose their votes first.
func TakeOut(servers []Server, id string) Step {
	out := Step{Remove, id}
	if !slices.ContainsFunc(servers, func(s Server) bool { return s.ID == id }) {
		return Step{}
	}
	if committable(servers, out) {
		return out
	}
	for _, s := range slices.Backward(servers) {
		if s.Voter && !s.Alive && committable(servers, Step{Demote, s.ID}) {
			return Step{Demote, s.ID}
		}
	}
	return Step{}
}

// firstToDemote prefers voters that have failed, then suspected ones, then young ones.
func firstToDemote(servers []Server) Step {
	rank := func(s Server) int {
		switch {
		case s.Failed:
			return 0
		case !s.Alive:
			return 1
		default:
			return 2
		}
	}
	candidates := slices.Clone(servers)
	slices.Reverse(candidates)
	slices.SortStableFunc(candidates, func(a, b Server) int { return cmp.Compare(rank(a), rank(b)) })
	for _, s := range candidates {
		// One that is not a member yet was started as a voter and joins soon.
		if s.Voter && !s.Leader && !s.Pending && committable(servers, Step{Demote, s.ID}) {
			return Step{Demote, s.ID}
		}
	}
	return Step{}
}

// committable is the minimum-quorum guard: raft commits a change by the
// configuration that it leads to, so a majority of those voters must be alive.
func committable(servers []Server, change Step) bool {
	voters, alive := 0, 0
	for _, s := range servers {
		votes := s.Voter
		if s.ID == change.Server {
			votes = change.Do == Promote
		}
		if votes {
			voters++
			if s.Alive {
				alive++
			}
		}
	}
	return alive > voters/2
}
