package cluster

import (
	"fmt"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/lab/protocol/fairk"
)

// Messages of raft and of the leases, as far as they matter.
type (
	// beatMsg: term has this leader, and this is the newest view it has.
	beatMsg struct {
		term uint64
		view *fairk.View
	}
	// askMsg asks a voter for its term, tellMsg answers.
	askMsg  struct{ term, round uint64 }
	tellMsg struct {
		round uint64
		voter int
		term  uint64
	}
	joinMsg struct {
		host   int
		boot   uint64
		voided kmutex.Node
	}
	// refuseJoinMsg: this incarnation is lost already.
	refuseJoinMsg struct{ boot uint64 }
	leaveMsg      struct{ node kmutex.Node }
	renewMsg      struct {
		renewal lease.Renewal
		report  leader.Report
	}
	grantMsg  struct{ renewal lease.Renewal }
	refuseMsg struct{ renewal lease.Renewal }
	// recoverMsg asks for a new epoch after this one.
	recoverMsg struct{ epoch uint64 }
)

func (m *beatMsg) String() string {
	return fmt.Sprintf("beat of term %d with view %d", m.term, m.view.Index)
}

func (m *askMsg) String() string  { return fmt.Sprintf("ask in term %d, round %d", m.term, m.round) }
func (m *tellMsg) String() string { return fmt.Sprintf("tell term %d, round %d", m.term, m.round) }
func (m *joinMsg) String() string {
	return fmt.Sprintf("join of boot %d, %d is void", m.boot, m.voided)
}
func (m *refuseJoinMsg) String() string { return fmt.Sprintf("refuse join of boot %d", m.boot) }
func (m *leaveMsg) String() string      { return fmt.Sprintf("leave of n%d", m.node) }
func (m *renewMsg) String() string      { return fmt.Sprintf("renew n%d/%d", m.renewal.Node, m.renewal.Tag) }

func (m *recoverMsg) String() string { return fmt.Sprintf("recover from epoch %d", m.epoch) }

func (m *grantMsg) String() string { return fmt.Sprintf("grant n%d/%d", m.renewal.Node, m.renewal.Tag) }

func (m *refuseMsg) String() string {
	return fmt.Sprintf("refuse n%d/%d", m.renewal.Node, m.renewal.Tag)
}

// called reports that a message is a call: it goes over a connection that its sender
// opens, or has opened for a call before. Who wants to come in is found by gossip, and
// called by the leader.
func called(m any) bool {
	switch m.(type) {
	case *askMsg, *leaveMsg, *renewMsg, *recoverMsg, *callMsg:
		return true
	default:
		return false
	}
}

// Kinds returns the names of the messages that a cluster sends, for [Cluster.Watch].
// There are as many for both bindings: the seeds of package fuzz draw from them.
func Kinds(early bool) []string {
	first, second := "recall", "tokens"
	if early {
		first, second = "child", "token"
	}
	return []string{
		"request", "baton", first, second, "locate", "offer", "report", "answer", "count", "holdings", "push", "ack", "returned", "call", "reply",
		"beat", "ask", "tell", "join", "leave", "renew", "grant", "refuse", "recover",
	}
}

// kindOf names a message.
func kindOf(m any) string {
	switch m := m.(type) {
	case interface{ Kind() string }:
		return m.Kind()
	case *beatMsg:
		return "beat"
	case *askMsg:
		return "ask"
	case *tellMsg:
		return "tell"
	case *joinMsg:
		return "join"
	case *leaveMsg:
		return "leave"
	case *renewMsg:
		return "renew"
	case *grantMsg:
		return "grant"
	case *recoverMsg:
		return "recover"
	case *callMsg:
		return "call"
	case *replyMsg:
		return "reply"
	default:
		return "refuse"
	}
}
