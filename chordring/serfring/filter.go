package serfring

import (
	"bytes"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// The kinds of serf's messages that a gateway takes.
const (
	kindLeave = 0
	kindJoin  = 1
	kindState = 2
)

// filter passes serf's messages about members that join and leave, and drops all others. Serf does
// much more for whoever has a gossip key, also an old one that is about to go: it hands out all keys,
// takes in others (the queries _serf_list-keys, _serf_install-key, _serf_use-key), sends what it
// is given to any address (relays), and keeps every event and the name of every stranger.
type filter struct {
	memberlist.Delegate
	agent *Agent
}

// NotifyMsg implements memberlist.Delegate.
func (f filter) NotifyMsg(message []byte) {
	if len(message) == 0 || message[0] != kindLeave && message[0] != kindJoin {
		return
	}
	var about struct {
		Node string
		// Prune: others are to forget the member. No gateway asks for that.
		Prune bool
	}
	if decode(message[1:], &about) == nil && !about.Prune && f.agent.heardOf(about.Node) {
		f.Delegate.NotifyMsg(message)
	}
}

// state is what serf adds to memberlist's exchange of states, without the events.
type state struct {
	LTime        uint64
	StatusLTimes map[string]uint64
	LeftMembers  []string
	EventLTime   uint64
	QueryLTime   uint64
}

// MergeRemoteState implements memberlist.Delegate. Memberlist has taken in the members before.
func (f filter) MergeRemoteState(message []byte, join bool) {
	var s state
	if len(message) == 0 || message[0] != kindState || decode(message[1:], &s) != nil {
		return
	}
	known := state{LTime: s.LTime, StatusLTimes: make(map[string]uint64)}
	for name, at := range s.StatusLTimes {
		if f.agent.heardOf(name) {
			known.StatusLTimes[name] = at
		}
	}
	for _, name := range s.LeftMembers {
		if _, has := known.StatusLTimes[name]; has {
			known.LeftMembers = append(known.LeftMembers, name)
		}
	}
	b := bytes.NewBuffer([]byte{kindState})
	if codec.NewEncoder(b, &codec.MsgpackHandle{}).Encode(known) == nil {
		f.Delegate.MergeRemoteState(b.Bytes(), join)
	}
}

func decode(b []byte, into any) error {
	return codec.NewDecoderBytes(b, &codec.MsgpackHandle{}).Decode(into)
}
