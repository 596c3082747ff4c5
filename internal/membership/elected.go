package membership

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/raftfile"
)

// Raft believes whoever says that it leads a later term. Over TLS we know who speaks,
// but not that it was elected: only those who voted know, and they know only about
// themselves. So a gateway that has not voted for the sender asks the other voters.
// Votes are on disk before they are given, so a voter in an earlier term, or one that
// has no vote for the sender in this term, has not elected it. If these are more than
// half of the voters, itself counted, the sender was not elected. Nor was it if so many
// still hear from another leader that the rest are no majority.
//
// This locks out no honest leader, also if the voters known here are one more or one
// less than those that elected it. Voters that follow the sender have asked, too, and
// deny nothing; nor do those that do not answer or may have lost their votes. It costs
// nothing where this gateway has voted for the leader, and one round trip where it has
// not.

// rpcGuard judges the messages that other gateways send to raft.
type rpcGuard struct {
	*raftNode
	prober  *prober
	leaders *leaderWatch
	states  *stateComparer
}

// checkLeader returns an error if sender cannot have been elected in term.
func (g *rpcGuard) checkLeader(sender string, term uint64) error {
	if !g.running() {
		return nil
	}
	current := g.raft.CurrentTerm()
	switch leads := g.leaderID(); {
	case term < current, leads == sender: // raft refuses the first
		return nil
	case term == current && leads != "":
		return fmt.Errorf("%w: %q says that it leads term %d, and %q does", errRPC, sender, term, leads)
	case g.storage.votedFor(sender, term):
		return nil
	default:
		return g.checkElected(sender, term)
	}
}

// notElected reports whether the voter that says a has not elected sender in term. An
// older gateway does not say whom it has voted for.
func (a *termAnswer) notElected(sender string, term uint64) bool {
	if a.Voted == nil || a.Term == term && a.Leader == sender {
		return false
	}
	return a.Term < term || a.Term == term && *a.Voted != sender
}

// denial is what one voter's answer says against a sender.
type denial struct{ follows, notElected bool }

// checkElected asks the voters, and returns an error if sender cannot have the votes of
// a majority.
func (g *rpcGuard) checkElected(sender string, term uint64) error {
	voters := g.voters()
	if len(voters) == 0 {
		return nil // a newcomer knows nobody
	}
	ctx, cancel := context.WithTimeout(g.closing, g.votesTime())
	defer cancel()
	answers := make(chan denial, len(voters))
	open := 0
	for _, v := range voters {
		if v == sender || g.prober.serverUnreachable(v) {
			continue
		}
		open++
		go func() { // ends with ctx
			said, err := g.leaders.termOf(ctx, v)
			if err != nil {
				answers <- denial{}
				return
			}
			answers <- denial{said.Leader != "" && said.Leader != sender, said.notElected(sender, term)}
		}()
	}
	follow, against := 0, 0
	for ; open > 0; open-- {
		if follow+open < len(voters)-len(voters)/2 && against+open <= len(voters)/2 {
			return nil
		}
		select {
		case no := <-answers:
			if no.follows {
				follow++
			}
			if no.notElected {
				against++
			}
		case <-ctx.Done():
			return nil
		}
		if follow >= len(voters)-len(voters)/2 || against > len(voters)/2 {
			return fmt.Errorf("%w: %q says that it leads term %d, and of %d voters %d follow another leader, %d have not elected it",
				errRPC, sender, term, len(voters), follow, against)
		}
	}
	return nil
}

// checkTransfer returns an error for a candidate that says its leader hands the lead
// over to it, while this gateway's leader says that it does not. Without that word raft
// refuses to vote as long as there is a leader.
func (g *rpcGuard) checkTransfer(sender string) error {
	leads := g.leaders.follows()
	if leads == "" || leads == sender {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.closing, g.votesTime())
	defer cancel()
	if said, err := g.leaders.termOf(ctx, leads); err != nil || said.Leader != leads || slices.Contains(said.HandsOver, sender) {
		return nil
	}
	return fmt.Errorf("%w: %q wants to take over the lead, and %q keeps it", errRPC, sender, leads)
}

// errRewritten means that a leader sent other entries in place of agreed ones.
var errRewritten = fmt.Errorf("%w, and the leader sends other entries in its place", raftfile.ErrContradiction)

// checkOverlap returns an error if a leader's entries contradict those that this gateway has: a term has
// one leader, which sends one entry for each index, and what was agreed on stays. If most voters
// have agreed on what this gateway has, the leader lies, and only its message is refused. Else
// the others have lost it, and this gateway ends.
func (g *rpcGuard) checkOverlap(sender string, m *raft.AppendEntriesRequest) error {
	if !g.running() || m.Term < g.raft.CurrentTerm() {
		return nil // raft refuses the latter
	}
	last, applied := g.raft.LastIndex(), g.raft.AppliedIndex()
	for _, e := range m.Entries {
		var have raft.Log
		if e.Index > last || g.storage.logs.GetLog(e.Index, &have) != nil {
			continue // a snapshot has it, or nobody yet
		}
		same := have.Term == e.Term
		if same && (have.Type != e.Type || !bytes.Equal(have.Data, e.Data)) || !same && e.Index <= applied {
			err := fmt.Errorf("%w: entry %d of term %d, here of term %d", errRewritten, e.Index, e.Term, have.Term)
			if !g.states.mostHaveMine(sender) {
				g.fail(err)
			} else if g.once.First("rewritten by " + sender) {
				g.config.Logger.Error("the leader sends other entries in place of agreed ones: it lies or has a defect",
					slog.String("leader", sender), slog.Any("error", err), slog.String("remedy", remedyLiar))
			}
			return err
		}
	}
	return nil
}
