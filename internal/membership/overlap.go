package membership

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/raftfile"
)

// errRewritten means that a leader sent other entries in place of agreed ones.
var errRewritten = fmt.Errorf("%w, and the leader sends other entries in its place", raftfile.ErrContradiction)

// checkOverlap returns an error if a leader's entries contradict those that this gateway has: a term has
// one leader, which sends one entry for each index, and what was agreed on stays. Then the others have
// lost what this gateway has, and it ends.
func (g *rpcGuard) checkOverlap(m *raft.AppendEntriesRequest) error {
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
			g.fail(err)
			return err
		}
	}
	return nil
}
