package membership

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// retryTransport is raft's transport. It differs from raft's own in six ways.
//
// It refuses answers in terms that no election has led to. It has a candidate's vote on
// disk before it asks for others. It sends fewer heartbeats to servers without a vote:
// there may be many of them, and nobody but they themselves counts theirs.
//
// And it keeps raft's replication from giving up on a server that cannot be reached.
// Raft waits twice as long after each failure, up to 10 s, so that a gateway which
// returns after a while would be a member for seconds before it saw the view that says
// so. Here a call for entries fails only when nobody needs it any more; heartbeats fail
// as they do, and tell raft who is there. A candidate asks again for a vote, too, as long
// as it stands in that term: raft asks once, and if that goes over a kept connection to a
// process that has been restarted since, the next election comes after the leases are over.
//
// Last, a server that entries do not reach gets no heartbeats either: a network that loses
// long packets would let a leader go on that can commit nothing.
type retryTransport struct {
	*raft.NetworkTransport
	n *raftNode
	// sent is when the last call that a server answered was sent, and feeding since when
	// one with entries has not been answered, by server.
	sent, feeding *sync.Map
}

var _ raft.Transport = retryTransport{}

var (
	errDiskHangs = errors.New("membership: the disk of data_dir does not answer")
	errUnfed     = errors.New("membership: heartbeats would pass, but entries of the log do not")
)

func (t retryTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if heartbeat(args) && t.enough(id) {
		resp.Term, resp.Success = args.Term, true
		return nil
	}
	if !heartbeat(args) {
		t.feeding.Store(id, time.Now())
		defer t.feeding.Delete(id)
	}
	for {
		sent := time.Now()
		var err error
		switch {
		case t.n.disk.hangs():
			err = errDiskHangs // the others hear nothing then, and elect another leader
		case heartbeat(args) && t.unfed(id):
			err = errUnfed
		default:
			err = t.NetworkTransport.AppendEntries(id, target, args, resp)
		}
		if err == nil {
			t.sent.Store(id, sent)
			return t.answer(nil, &resp.Term)
		}
		if heartbeat(args) || !t.stillFeeds(id, args.Term) {
			return err
		}
		*resp = raft.AppendEntriesResponse{}
	}
}

// enough reports that a server without a vote needs no heartbeat yet: it was sent
// something within a third of the time after which it misses the leader.
func (t retryTransport) enough(id raft.ServerID) bool {
	last, _ := t.sent.Load(id)
	at, ok := last.(time.Time)
	return ok && time.Since(at) < t.n.raftTimeout()/3 && !slices.Contains(t.n.voters(), string(id))
}

// unfed reports that a call with entries has gone unanswered for a lease.
func (t retryTransport) unfed(id raft.ServerID) bool {
	since, _ := t.feeding.Load(id)
	at, ok := since.(time.Time)
	return ok && time.Since(at) > t.n.lease()
}

// RequestVote implements raft.Transport. The term and this candidate's own vote are
// written before it asks, in one.
func (t retryTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.n.roll.mayStand(); err != nil {
		return err
	}
	if file := t.n.storage.file; file != nil {
		if err := file.VoteForSelf(args.Term, args.Addr); err != nil {
			return err
		}
	}
	return t.askForVote(args.Term, &resp.Term, func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (t retryTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.n.roll.mayStand(); err != nil {
		return err
	}
	return t.askForVote(args.Term-1, &resp.Term, func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// askForVote asks until there is an answer, or raft no longer stands in term, or asks again itself:
// rounds of pre-votes follow one another in the same term.
func (t retryTransport) askForVote(term uint64, answered *uint64, ask func() error) error {
	round := time.Now().Add(t.n.raftTimeout())
	for pause := time.Millisecond; ; pause = min(2*pause, soon) {
		err := ask()
		if err == nil || time.Now().After(round) || t.n.sleep(t.n.closing, pause) != nil || !t.stands(term) {
			return t.answer(err, answered)
		}
	}
}

func (t retryTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.answer(t.NetworkTransport.InstallSnapshot(id, target, args, resp, data), &resp.Term)
}

// stands reports that this gateway asks for votes, and that its term is the given one.
func (t retryTransport) stands(term uint64) bool {
	return t.n.running() && t.n.raft.State() == raft.Candidate && t.n.raft.CurrentTerm() == term
}

// answer refuses an answer with a term that no election has led to: raft would go on in
// it.
func (t retryTransport) answer(err error, term *uint64) error {
	if err == nil {
		err = t.n.plausible(*term, 0)
	}
	if err != nil {
		*term = 0
	}
	return err
}

// heartbeat tells raft's heartbeats from entries as raft itself does.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// stillFeeds waits for a moment and reports whether the server is still to get
// entries of the term from here.
func (t retryTransport) stillFeeds(id raft.ServerID, term uint64) bool {
	return t.n.sleep(t.n.closing, soon) == nil && t.n.running() && t.n.leads() && t.n.raft.CurrentTerm() == term &&
		slices.ContainsFunc(t.n.servers(), func(s raft.Server) bool { return s.ID == id })
}
