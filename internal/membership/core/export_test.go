package core

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kgate/kgate/kmutex"
)

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

// Heard returns when a leader has taken the newest renewal of a member.
func Heard(c *Core, of kmutex.Node) time.Duration { at, _ := c.l.grantor.Heard(of); return at }

// TakeServer has a leader take a process off raft's servers.
func TakeServer(c *Core, id ID) {
	c.changeConf(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(id))}}})
}
