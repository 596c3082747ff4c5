package membership

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/internal/peercall"
)

// All gateways must have applied the same entries. Raft sees to that as long as its
// servers tell the truth: one that lies, or a defect, can give gateways different
// entries, and each would go on with its own k. So each gateway keeps a digest of all
// that it has applied, compares it with those of the other voters, one after the other
// a few times in a lease, and if two differ, with all at once. The gateways that differ
// from most voters end.
//
// A gateway whose state was compared with every voter's asks nobody until something
// changes here: if a voter's state changes, that voter asks.

// stateAnswer is what a gateway says of the entries that it has applied.
type stateAnswer struct {
	Newest views.Checkpoint `json:"newest"`
	// Same tells whether the views.Checkpoint that was asked about is one of its own, and
	// Known whether it could tell.
	Same  bool `json:"same,omitempty"`
	Known bool `json:"known,omitempty"`
	// Leads: it is the leader in Term, and nothing behind Commit is agreed on.
	Leads  bool   `json:"leads,omitempty"`
	Term   uint64 `json:"term"`
	Commit uint64 `json:"commit"`
}

// stateOf describes this gateway's state to one that has applied the entries up to
// theirs.
func (s *stateComparer) stateOf(theirs views.Checkpoint) stateAnswer {
	a := stateAnswer{Term: s.raft.CurrentTerm(), Newest: s.machine.newestCheckpoint()}
	a.Same, a.Known = s.machine.compare(theirs)
	a.Leads = s.leases.grantsIn(a.Term)
	a.Commit = s.raft.CommitIndex()
	return a
}

// stateComparer compares what this gateway has applied with what others have.
type stateComparer struct {
	*raftNode
	peers  *peerClient
	leases *leaseServer
}

// stateKey is what a comparison depends on at this end.
type stateKey struct {
	index  uint64
	digest string
	leader string
	term   uint64
}

func (s *stateComparer) key() stateKey {
	c := s.machine.newestCheckpoint()
	return stateKey{c.Index, string(c.Digest), s.leaderID(), s.raft.CurrentTerm()}
}

// run compares this gateway's state with those of the other voters while the cluster
// runs: in turn with the leader, which knows most, and with another one, since the
// leader may be the one that lies. It asks nobody again while nothing has changed.
func (s *stateComparer) run() {
	same := make(map[string]stateKey) // what was compared last with a voter that has the same
	turn := 0
	for s.sleep(s.closing, max(s.lease()/4, leastTimeout)) == nil {
		now := s.key()
		others := s.otherVoters()
		ask := slices.DeleteFunc(slices.Clone(others), func(v string) bool { return same[v] == now })
		if len(ask) > 0 && s.machine.problem() == nil {
			one := ask[turn/2%len(ask)]
			if turn%2 == 0 && slices.Contains(ask, now.leader) {
				one = now.leader
			}
			turn++
			switch s.compareWith(s.closing, one) {
			case stateSame:
				same[one] = now
			case stateDiffers:
				s.settleDifference(others)
			case stateUnknown:
			}
		}
		maps.DeleteFunc(same, func(v string, _ stateKey) bool { return !slices.Contains(others, v) })
	}
}

// comparison is what came of comparing two gateways' states.
type comparison int

const (
	stateUnknown comparison = iota
	stateSame
	stateDiffers
)

// compareWith asks a voter about this gateway's state.
func (s *stateComparer) compareWith(ctx context.Context, voter string) comparison {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout())
	defer cancel()
	to, known := s.addresses.to(voter)
	if !known {
		return stateUnknown
	}
	leader, term, mine := s.leaderID(), s.raft.CurrentTerm(), s.machine.newestCheckpoint()
	var said stateAnswer
	question := url.Values{"server": {voter}, "index": {strconv.FormatUint(mine.Index, 10)}, "digest": {string(mine.Digest)}}
	if err := s.peers.call(ctx, http.MethodGet, to, pathState+"?"+question.Encode(), nil, &said); err != nil {
		return stateUnknown
	}
	// Whoever leads in our term or a later one has seen all that was agreed on before.
	ahead := said.Leads && voter == leader && said.Term >= term && mine.Index > said.Commit
	same, known := s.machine.compare(said.Newest)
	switch {
	case ahead, said.Known && !said.Same, known && !same:
		return stateDiffers
	case said.Known:
		return stateSame
	default: // one of the two is behind
		return stateUnknown
	}
}

// compareWithAll compares this gateway's state with those of the voters named, all at once.
func (s *stateComparer) compareWithAll(ctx context.Context, voters []string) (same, differ []string) {
	results := make([]comparison, len(voters))
	peercall.Each(voters, asksAtOnce, func(i int, v string) { results[i] = s.compareWith(ctx, v) })
	for i, v := range voters {
		switch results[i] {
		case stateSame:
			same = append(same, v)
		case stateDiffers:
			differ = append(differ, v)
		case stateUnknown:
		}
	}
	return same, differ
}

// mostHaveMine reports whether most voters have applied the entries that this gateway has,
// itself counted. The leader that says otherwise is not asked.
func (s *stateComparer) mostHaveMine(leader string) bool {
	ctx, cancel := context.WithTimeout(s.closing, s.votesTime())
	defer cancel()
	voters := s.voters()
	others := slices.DeleteFunc(s.otherVoters(), func(v string) bool { return v == leader })
	same, _ := s.compareWithAll(ctx, others)
	have := len(same)
	if slices.Contains(voters, s.storage.meta.Server) {
		have++
	}
	return have > len(voters)/2
}

// remedyLiar says what to do about gateways that lie.
const remedyLiar = "stop it, give it new keys or a new certificate, move its data_dir away and start it again"

// settleDifference compares this gateway's state with those of all other voters, and
// ends this gateway if more of them differ from it than do not, itself counted; the
// leader decides a tie.
func (s *stateComparer) settleDifference(others []string) {
	same, differ := s.compareWithAll(s.closing, others)
	mine := len(same) + 1
	switch index := s.machine.newestCheckpoint().Index; {
	case len(differ) == 0:
	case len(differ) > mine || len(differ) == mine && slices.Contains(differ, s.leaderID()):
		s.fail(fmt.Errorf("%w: of %d others %d differ from it at entry %d", errDiffers, len(others), len(differ), index))
	case s.once.First("states differ"):
		s.config.Logger.Error("gateways have agreed on different states: one of them lies or has a defect",
			slog.Any("differ", differ), slog.Any("same", same), slog.Uint64("index", index), slog.String("remedy", "for those that differ: "+remedyLiar))
	}
}
