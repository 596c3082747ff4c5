package membership

import (
	"bytes"
	"context"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/raftfile"
)

// Raft believes whoever says that it leads a later term. Over TLS we know who speaks,
// but not that it was elected: only those who voted know, and they know only about
// themselves. So a gateway that has not voted for the sender asks the other voters. One
// of them denies the sender if it still hears from another leader. An elected leader has
// the votes of a majority, which have left every earlier leader, so at most the others
// deny it; a sender that more voters deny was not elected.
//
// This locks out no honest leader: voters deny it only as long as they hear from
// another one, and that one gives the lead up within LeaderLease when it no longer
// reaches a majority. Voters that do not answer, have restarted, or have no leader deny
// nobody. It costs nothing where this gateway has voted for the leader, and one round
// trip where it has not.

// checkLeader returns an error if sender cannot have been elected in term.
func (c *Cluster) checkLeader(sender string, term uint64) error {
	select {
	case <-c.up:
	default: // raft asks while it is being made
		return nil
	}
	current := c.raft.CurrentTerm()
	_, id := c.raft.LeaderWithID()
	switch leads := string(id); {
	case term < current, leads == sender: // raft refuses the first
		return nil
	case term == current && leads != "":
		return fmt.Errorf("%w: %q says that it leads term %d, and %q does", errRPC, sender, term, leads)
	case c.votedFor(sender, term):
		return nil
	default:
		return c.checkElected(sender, term)
	}
}

// votedFor reports whether this gateway has voted for the server in that term.
func (c *Cluster) votedFor(server string, term uint64) bool {
	voted, err := c.storage.stable.GetUint64([]byte(raftfile.KeyVoteTerm))
	if err != nil || voted != term {
		return false
	}
	candidate, err := c.storage.stable.Get([]byte(raftfile.KeyVoteCandidate))
	_, name := splitAddress(raft.ServerAddress(candidate))
	return err == nil && name == server
}

// follows returns the leader that this gateway hears from, itself if it leads; empty if
// there is none.
func (c *Cluster) follows() string {
	_, id := c.raft.LeaderWithID()
	if id == "" || c.leaderless() {
		return ""
	}
	return string(id)
}

// checkElected asks the voters, and returns an error if so many follow another leader
// that sender cannot have the votes of a majority.
func (c *Cluster) checkElected(sender string, term uint64) error {
	voters := c.voters()
	if len(voters) == 0 {
		return nil // a newcomer knows nobody
	}
	allowed := len(voters) - (len(voters)/2 + 1)
	ctx, cancel := context.WithTimeout(c.closing, c.votesTime())
	defer cancel()
	answers := make(chan bool, len(voters))
	open := 0
	for _, v := range voters {
		if v == sender || c.serverUnreachable(v) {
			continue
		}
		open++
		go func() { // ends with ctx
			said, err := c.termOf(ctx, v)
			answers <- err == nil && said.Leader != "" && said.Leader != sender
		}()
	}
	denied := 0
	for ; denied <= allowed && denied+open > allowed; open-- {
		select {
		case no := <-answers:
			if no {
				denied++
			}
		case <-ctx.Done():
			return nil
		}
	}
	if denied > allowed {
		return fmt.Errorf("%w: %q says that it leads term %d, and %d of %d voters follow another leader", errRPC, sender, term, denied, len(voters))
	}
	return nil
}

// checkTransfer returns an error for a candidate that says its leader hands the lead
// over to it, while this gateway's leader says that it does not. Without that word raft
// refuses to vote as long as there is a leader.
func (c *Cluster) checkTransfer(sender string) error {
	leads := c.follows()
	if leads == "" || leads == sender {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.closing, c.votesTime())
	defer cancel()
	if said, err := c.termOf(ctx, leads); err != nil || said.Leader != leads || said.HandsOver == sender {
		return nil
	}
	return fmt.Errorf("%w: %q wants to take over the lead, and %q keeps it", errRPC, sender, leads)
}

// errRewritten means that a leader sent other entries in place of agreed ones.
var errRewritten = fmt.Errorf("%w, and the leader sends other entries in its place", raftfile.ErrContradiction)

// checkOverlap ends this gateway if a leader's entries contradict those that it has: a term has one
// leader, which sends one entry for each index, and what was agreed on stays.
func (c *Cluster) checkOverlap(m *raft.AppendEntriesRequest) error {
	select {
	case <-c.up:
	default:
		return nil
	}
	if m.Term < c.raft.CurrentTerm() {
		return nil // raft refuses it
	}
	last, applied := c.raft.LastIndex(), c.raft.AppliedIndex()
	for _, e := range m.Entries {
		var have raft.Log
		if e.Index > last || c.storage.logs.GetLog(e.Index, &have) != nil {
			continue // a snapshot has it, or nobody yet
		}
		same := have.Term == e.Term
		if same && (have.Type != e.Type || !bytes.Equal(have.Data, e.Data)) || !same && e.Index <= applied {
			err := fmt.Errorf("%w: entry %d of term %d, here of term %d", errRewritten, e.Index, e.Term, have.Term)
			c.fail(err)
			return err
		}
	}
	return nil
}
