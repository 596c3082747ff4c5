package core

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Kind names the message.
func (m Message) Kind() string {
	switch {
	case m.raft != nil:
		return raftKind(m.raft)
	case m.Hello != nil:
		return "hello"
	case m.Join != nil:
		return "join"
	case m.Renew != nil:
		return "renew"
	case m.Grant != nil:
		return "grant"
	case m.Knocks != nil:
		return "knocks"
	case m.Refusal != nil:
		return "refusal"
	default:
		return "ask"
	}
}

// String tells what a trace needs.
func (m Message) String() string {
	if r := m.raft; r != nil {
		return fmt.Sprintf("%s in term %d: index %d of term %d, %d entries, reject %t", m.Kind(), r.GetTerm(), r.GetIndex(), r.GetLogTerm(), len(r.GetEntries()), r.GetReject())
	}
	return m.Kind()
}

func raftKind(m *pb.Message) string {
	switch m.GetType() {
	case pb.MsgHeartbeat:
		return "heartbeat"
	case pb.MsgHeartbeatResp:
		return "alive"
	case pb.MsgApp:
		if len(m.GetEntries()) == 0 {
			return "commit"
		}
		return "append"
	case pb.MsgAppResp:
		return "appended"
	case pb.MsgVote, pb.MsgPreVote:
		return "ask for vote"
	case pb.MsgVoteResp, pb.MsgPreVoteResp:
		return "vote"
	case pb.MsgSnap:
		return "snapshot"
	default:
		return "stand"
	}
}
