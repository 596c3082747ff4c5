package membership

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// patient keeps raft's replication from giving up on a server that cannot be
// reached. Raft waits twice as long after each failure, up to 10 s, so that a
// gateway which returns after a while would be a member for seconds before it
// saw the view that says so. Here a call for entries fails only when nobody
// needs it any more; heartbeats fail as they do, and tell raft who is there.
type patient struct {
	*raft.NetworkTransport
	c *Cluster
}

var _ raft.Transport = patient{}

// AppendEntries implements raft.Transport.
func (p patient) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		err := p.NetworkTransport.AppendEntries(id, target, args, resp)
		if err == nil || heartbeat(args) || !p.c.stillFeeds(id, args.Term) {
			return err
		}
		*resp = raft.AppendEntriesResponse{}
	}
}

// RequestVote implements raft.Transport. The term and this candidate's own vote are
// written before it asks, in one.
func (p patient) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if file := p.c.storage.file; file != nil {
		if err := file.VoteForSelf(args.Term, args.Addr); err != nil {
			return err
		}
	}
	return p.NetworkTransport.RequestVote(id, target, args, resp)
}

// heartbeat tells raft's heartbeats from entries as raft itself does.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// stillFeeds waits for a moment and reports whether the server is still to get
// entries of the term from here.
func (c *Cluster) stillFeeds(id raft.ServerID, term uint64) bool {
	select {
	case <-time.After(soon):
	case <-c.closing.Done():
		return false
	}
	select {
	case <-c.up:
	default:
		return false
	}
	return c.raft.State() == raft.Leader && c.raft.CurrentTerm() == term &&
		slices.ContainsFunc(c.servers(), func(s raft.Server) bool { return s.ID == id })
}
