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
	// Refusal answers an Ask.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Knocks is what a gateway says that asks the sender to be let in, and has no connection to the
	// leader.
	Knocks *views.Join `json:"knocks,omitempty"`

	// raft is raft's own. It is never changed, so that many may have it.
	raft *pb.Message
}

// Position is a place in the log.
type Position struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

// before reports whether a log that ends at p lacks something of one that ends at q:
// raft's own order of logs.
func (p Position) before(q Position) bool {
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
	// Leaving: it is to be stopped, and takes no lead.
	Leaving bool `json:"leaving,omitempty"`
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
	Data []byte `json:"data"`
	// Proof shows that who asks has the admin token; only changes that people make need it.
	Proof []byte `json:"proof,omitempty"`
}

// Refusal says why a command will not be agreed on.
type Refusal struct {
	Tag uint64 `json:"tag"`
	Why string `json:"why"`
}

// maxMessage bounds a message, as the connection does: a snapshot of several thousand gateways, lost
// ones and pools.
const maxMessage = 4 << 20

// errMessage means that no process of this version has sent a message.
var errMessage = errors.New("message refused")

// Encode returns the message as bytes.
func (m Message) Encode() ([]byte, error) {
	if m.raft != nil {
		data, err := proto.MarshalOptions{}.MarshalAppend([]byte{'r'}, m.raft)
		if err != nil {
			return nil, fmt.Errorf("encode message: %w", err)
		}
		return data, nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
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
		return Message{raft: m}, errors.Join(checkRaft(m), checkEntries(m))
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
	for _, set := range []bool{m.Hello != nil, m.Join != nil, m.Renew != nil, m.Grant != nil, m.Ask != nil, m.Refusal != nil, m.Knocks != nil} {
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

// checkEntries returns an error for entries, or a snapshot, that raft or those who apply them would
// take amiss.
func checkEntries(m *pb.Message) error {
	for i, e := range m.GetEntries() {
		if e.GetTerm() > m.GetTerm() || e.GetIndex() != m.GetIndex()+1+uint64(i) {
			return fmt.Errorf("%w: entry %d of %d", errMessage, i+1, len(m.GetEntries()))
		}
		switch e.GetType() {
		case pb.EntryNormal:
		case pb.EntryConfChangeV2:
			if err := proto.Unmarshal(e.GetData(), new(pb.ConfChangeV2)); err != nil {
				return fmt.Errorf("%w: entry %d: %w", errMessage, e.GetIndex(), err)
			}
		default:
			return fmt.Errorf("%w: entry %d is of type %v", errMessage, e.GetIndex(), e.GetType())
		}
	}
	if m.GetType() != pb.MsgSnap {
		return nil
	}
	meta := m.GetSnapshot().GetMetadata()
	if meta.GetIndex() == 0 || meta.GetIndex() > maxTerm || meta.GetTerm() > m.GetTerm() || len(meta.GetConfState().GetVoters()) == 0 {
		return fmt.Errorf("%w: a snapshot of index %d, term %d", errMessage, meta.GetIndex(), meta.GetTerm())
	}
	var d snapshotData
	if err := json.Unmarshal(m.GetSnapshot().GetData(), &d); err != nil {
		return fmt.Errorf("%w: snapshot: %w", errMessage, err)
	}
	return nil
}

// lostNode is a Grant's Renewal that names only the node.
func lostNode(node kmutex.Node) lease.Renewal { return lease.Renewal{Node: node} }
