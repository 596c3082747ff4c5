package fuzz

import (
	"strings"
	"testing"
	"time"
)

// Links that break one after the other leave two sets that are fully connected, and the
// smaller one in the view: the larger one takes over.
func TestLinksBreakOneByOne(t *testing.T) {
	s := &Scenario{Mode: Liveness, Hosts: 6, Members: 6, K: 3, Base: time.Millisecond, End: 16 * time.Second}
	for i, host := range []int{3, 4, 5} {
		at := time.Duration(2+4*i) * time.Second
		s.Ops = append(s.Ops, Op{At: at, Kind: OpCut, From: 0b110, To: 1 << host}, Op{At: at, Kind: OpCut, From: 1 << host, To: 0b110})
	}
	if _, err := Run(s, nil); err != nil {
		t.Error(err)
	}
}

// A leader that can open no connections keeps out two gateways that others reach. It learns that
// over the connections that it has, and hands the lead over.
func TestLeaderOpensNone(t *testing.T) {
	s := &Scenario{Mode: Liveness, Hosts: 5, Members: 5, K: 3, Base: time.Millisecond, End: 12 * time.Second}
	s.Ops = []Op{
		{At: 4 * time.Second, Kind: OpBar, From: 0b1, To: 0b11111},
	}
	for _, host := range []int{3, 4} {
		s.Ops = append(s.Ops, Op{At: 5 * time.Second, Kind: OpKill, Host: host}, Op{At: 6 * time.Second, Kind: OpStart, Host: host})
	}
	if _, err := Run(s, nil); err != nil {
		t.Error(err)
	}
}

// When the faults have ended nothing follows from them: a leader that is to be killed later lives.
func TestNothingFollowsTheEnd(t *testing.T) {
	s := &Scenario{Mode: Liveness, Hosts: 5, Members: 5, K: 1, Base: time.Millisecond, End: 4 * time.Second}
	for host := range 2 { // one of them does not lead
		s.Ops = append(s.Ops, Op{At: s.End - time.Millisecond, Kind: OpDepose, Host: host, Hold: time.Second, K: 1})
	}
	var trace strings.Builder
	if _, err := Run(s, &trace); err != nil || strings.Contains(trace.String(), "is killed") {
		t.Errorf("%v, killed: %t", err, strings.Contains(trace.String(), "is killed"))
	}
}

// Of two gateways one is lost, and the other one, which has the only vote, leaves then. It is started again.
func TestLastOneLeaves(t *testing.T) {
	for leaves := range 2 {
		s := &Scenario{Mode: Liveness, Hosts: 2, Members: 2, K: 1, Base: time.Millisecond, End: 6 * time.Second}
		s.Ops = []Op{
			{At: 2 * time.Second, Kind: OpRequest, Host: leaves, Hold: time.Second},
			{At: 2100 * time.Millisecond, Kind: OpLeave, Host: leaves},
			{At: 2200 * time.Millisecond, Kind: OpKill, Host: 1 - leaves},
		}
		if _, err := Run(s, nil); err != nil {
			t.Error(err)
		}
	}
}

// Old copies are put back at one host after the other, and none where the others have not caught up.
func TestOldCopiesAtAll(t *testing.T) {
	s := &Scenario{Mode: Liveness, Hosts: 3, Members: 3, K: 1, Base: time.Millisecond, Write: time.Millisecond, End: 8 * time.Second}
	for i := range 12 {
		s.Ops = append(s.Ops, Op{At: 4*time.Second + time.Duration(i)*50*time.Millisecond, Kind: OpSetK, K: 1 + i%3})
	}
	for host := range s.Hosts {
		s.Ops = append(s.Ops, Op{At: 5*time.Second + time.Duration(host)*time.Millisecond, Kind: OpRestore, Host: host})
	}
	if _, err := Run(s, nil); err != nil {
		t.Error(err)
	}
}
