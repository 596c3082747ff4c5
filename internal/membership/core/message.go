package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

// Message is what one process says to another: exactly one field is set.
type Message struct {
	Hello *Hello   `json:"hello,omitempty"`
	Join  *Join    `json:"join,omitempty"`
	Renew *Renew   `json:"renew,omitempty"`
	Grant *Grant   `json:"grant,omitempty"`
	Ask   *Command `json:"ask,omitempty"`
	// Knocks is the name of a gateway that asks the sender to be let in, and has no connection
	// to the leader.
	Knocks string `json:"knocks,omitempty"`

	// raft is raft's own. It is never changed, so that many may have it.
	raft *pb.Message
}

// Position is a place in the log.
type Position struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

// Before reports whether a log that ends at p lacks something of one that ends at q:
// raft's own order of logs.
func (p Position) Before(q Position) bool {
	return p.Term < q.Term || p.Term == q.Term && p.Index < q.Index
}

// Hello says who a process is. It is the first message of each connection, and is said again
// when what matters has changed.
type Hello struct {
	Name string `json:"name"`
	Boot string `json:"boot"`
	Addr string `json:"addr"`
	// Cluster is the one that it belongs to, empty if none.
	Cluster string `json:"cluster,omitempty"`
	// Leader is the process that leads, as far as it knows.
	Leader ID `json:"leader,omitempty"`
	// Agreed is how far it knows the log to be agreed on, and Last where its own ends.
	Agreed Position `json:"agreed"`
	Last   Position `json:"last"`
	// Sees are the gateways that it wants to found a cluster with, and Founders those that
	// it has founded one with.
	Sees     []string  `json:"sees,omitempty"`
	Founders []Founder `json:"founders,omitempty"`
}

// Founder is a process with which a cluster begins.
type Founder struct {
	ID    ID     `json:"id"`
	Name  string `json:"name"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

// Join asks the leader to be let in.
type Join struct {
	Join views.Join `json:"join"`
	// Reaches are the gateways to which it has connections, by name.
	Reaches []string `json:"reaches"`
}

// Renew asks the leader for one more lease.
type Renew struct {
	lease.Renewal
	leader.Report
}

// Grant answers a Renew, or a Join.
type Grant struct {
	Renewal lease.Renewal `json:"renewal"`
	// Lost is the boot of an incarnation that will never be let in, if this is no grant.
	Lost string `json:"lost,omitempty"`
	// Applied is how far the leader has applied the log, and what.
	Applied views.Checkpoint `json:"applied"`
}

// Command asks the leader to have a command agreed on.
type Command struct {
	Tag  uint64 `json:"tag"`
	Data []byte `json:"data"`
}

// maxMessage bounds a message: a snapshot of views.MaxMembers and views.MaxPools of the longest
// texts, escaped.
const maxMessage = 64 << 20

// errMessage means that no process of this version has sent a message.
var errMessage = errors.New("membership: message refused")

// Encode returns the message as bytes.
func (m Message) Encode() ([]byte, error) {
	if m.raft != nil {
		data, err := proto.MarshalOptions{}.MarshalAppend([]byte{'r'}, m.raft)
		if err != nil {
			return nil, fmt.Errorf("membership: encode message: %w", err)
		}
		return data, nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("membership: encode message: %w", err)
	}
	return data, nil
}

// DecodeMessage reads what Encode has returned.
func DecodeMessage(data []byte) (Message, error) {
	if len(data) == 0 || len(data) > maxMessage {
		return Message{}, fmt.Errorf("%w: %d bytes", errMessage, len(data))
	}
	if data[0] == 'r' {
		m := new(pb.Message)
		if err := proto.Unmarshal(data[1:], m); err != nil {
			return Message{}, fmt.Errorf("%w: %w", errMessage, err)
		}
		return Message{raft: m}, checkRaft(m)
	}
	var m Message
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", errMessage, err)
	}
	if n := m.fields(); n != 1 {
		return Message{}, fmt.Errorf("%w: it says %d things", errMessage, n)
	}
	return m, nil
}

func (m Message) fields() int {
	n := 0
	for _, set := range []bool{m.Hello != nil, m.Join != nil, m.Renew != nil, m.Grant != nil, m.Ask != nil, m.Knocks != ""} {
		if set {
			n++
		}
	}
	return n
}

// maxTerm is the latest term at all: raft adds one to it without looking.
const maxTerm = 1 << 62

// checkRaft returns an error for what raft would take amiss.
func checkRaft(m *pb.Message) error {
	if m.GetTerm() > maxTerm || m.GetIndex() > maxTerm || m.GetLogTerm() > m.GetTerm() && m.GetType() != pb.MsgPreVote {
		return fmt.Errorf("%w: term %d, index %d of term %d", errMessage, m.GetTerm(), m.GetIndex(), m.GetLogTerm())
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgSnap,
		pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow:
		return nil
	default:
		return fmt.Errorf("%w: raft's %v goes to nobody else", errMessage, m.GetType())
	}
}

// kind names the message for a trace.
func (m Message) kind() string {
	switch {
	case m.raft != nil:
		return fmt.Sprintf("%v of term %d, index %d of term %d, %d entries, reject %t", m.raft.GetType(), m.raft.GetTerm(), m.raft.GetIndex(), m.raft.GetLogTerm(), len(m.raft.GetEntries()), m.raft.GetReject())
	case m.Hello != nil:
		return "hello"
	case m.Join != nil:
		return "join"
	case m.Renew != nil:
		return "renew"
	case m.Grant != nil:
		return "grant"
	case m.Knocks != "":
		return "knocks"
	default:
		return "ask"
	}
}

// lostNode is a Grant's Renewal that names only the node.
func lostNode(node kmutex.Node) lease.Renewal { return lease.Renewal{Node: node} }
