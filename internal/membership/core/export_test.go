package core

import pb "go.etcd.io/raft/v3/raftpb"

// What the tests with a world need of what is inside.
var (
	EncodeEntry = encodeEntry
	Proof       = proof
	MaxTermStep = uint64(maxTermStep)
)

// HandOver has a leader pass the lead on.
func HandOver(c *Core) { c.handOver() }

// SetTokens sets the admin tokens.
func SetTokens(c *Core, tokens func() []string) { c.cfg.Tokens = tokens }

// Raft returns a message of raft's.
func Raft(m *pb.Message) Message { return Message{raft: m} }

// RenewalWaits reports that a leader has taken a process's renewal, which waits for a round.
func RenewalWaits(c *Core, of ID) bool { _, waits := c.l.waiting[of]; return waits }
