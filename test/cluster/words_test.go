package cluster

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
)

// scene is three gateways for a minute: gw-3 is killed after 20 s and started again after 40 s, and
// gw-1 and gw-2 do not hear each other from 50 s on.
func scene() (*facts, time.Time) {
	began := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	f := &facts{strict: true, lease: 100 * time.Millisecond, open: true, runs: []*life{
		{name: "gw-1", began: began},
		{name: "gw-2", began: began},
		{name: "gw-3", began: began, ended: at(20), acts: []act{{at(20), syscall.SIGKILL}}},
		{name: "gw-3", began: at(40)},
	}}
	f.cuts = []Cut{{From: "gw-1", To: "gw-2", Since: at(50), Held: at(50)}}
	return f, began
}

// TestFalseWords plants words, and finds those that are false.
func TestFalseWords(t *testing.T) {
	t.Setenv(SoakVariable, "1") // times are exact here
	for _, tc := range []struct {
		second int
		by     string
		fields Record
		wrong  bool
	}{
		{21, "gw-1", Record{"msg": "gateway lost: its slots come back when its lease has run out", "name": "gw-3", "reason": "its peer port does not answer"}, false},
		{21, "gw-1", Record{"msg": "gateway lost: its slots come back when its lease has run out", "name": "gw-2", "reason": "its peer port does not answer"}, true},
		{19, "gw-1", Record{"msg": "gateway lost: its slots come back when its lease has run out", "name": "gw-3", "reason": "gossip does not see it"}, true},
		{21, "gw-1", Record{"msg": "gateway lost: its slots have come back", "name": "gw-3", "reason": "it was stopped in order"}, true},
		{41, "gw-1", Record{"msg": "gateway lost: its slots have come back", "name": "gw-3", "reason": "it has joined again as another incarnation"}, false},
		{35, "gw-1", Record{"msg": "gateway lost: its slots have come back", "name": "gw-3", "reason": "its peer port does not answer"}, false},
		{35, "gw-1", Record{"msg": "gateway lost: its slots come back when its lease has run out", "name": "gw-2", "reason": "its peer port does not answer"}, true},
		{45, "gw-1", Record{"msg": "gateway lost: its slots have come back", "name": "gw-2", "reason": "its peer port does not answer"}, true},
		{21, "gw-1", Record{"msg": "gateway left", "name": "gw-3", "reason": "its peer port does not answer"}, true},
		{21, "gw-1", Record{"msg": "gateway left", "name": "gw-3", "reason": "it was stopped in order"}, true},
		{22, "gw-1", Record{"msg": "cannot reach peer", "peer": "gw-3", "error": "connection refused"}, false},
		{22, "gw-1", Record{"msg": "cannot reach peer", "peer": "gw-2", "error": "connection refused"}, true},
		{22, "gw-1", Record{"msg": "cannot reach peer", "peer": "gw-1", "error": "i/o timeout"}, true},
		{52, "gw-1", Record{"msg": "cannot reach peer", "peer": "gw-2", "error": "i/o timeout"}, false},
		{15, "gw-1", Record{"msg": "cannot reach peer", "peer": "gw-2", "error": "i/o timeout"}, true},
		{15, "gw-2", Record{"msg": "lease lost: rejoining as a new incarnation"}, true},
		{53, "gw-2", Record{"msg": "lease lost: rejoining as a new incarnation"}, false},
		{15, "gw-1", Record{"msg": "request broken off", "cause": "the slot was lost"}, true},
		{15, "gw-1", Record{"msg": "request broken off", "cause": "the client is slow"}, false},
		{22, "gw-1", Record{"msg": "not in the cluster", "reason": "no leader: 1 of 3 voters are seen, and a majority must be: start gw-3 again"}, false},
		{15, "gw-1", Record{"msg": "not in the cluster", "reason": "no leader: 1 of 3 voters are seen, and a majority must be: start gw-2 or gw-3 again"}, true},
		{22, "gw-1", Record{"msg": "not in the cluster", "reason": "no leader: 2 of 3 voters are seen, and a majority must be: start gw-3 again"}, true},
		{15, "gw-1", Record{"msg": "upstream is silent"}, true},
		{15, "gw-1", Record{"msg": "requests were aborted"}, true},
		{15, "gw-1", Record{"msg": "a gateway was refused: its name is in use", "detail": "gw-2"}, true},
		{15, "gw-1", Record{"msg": "the sky falls"}, true},
	} {
		f, began := scene()
		for _, r := range f.runs {
			if r.name == tc.by {
				tc.fields["level"] = "WARN"
				r.lines = append(r.lines, line{Record: tc.fields, at: began.Add(time.Duration(tc.second) * time.Second), who: r})
				break
			}
		}
		if wrong := f.judgeLogs(); (len(wrong) > 0) != tc.wrong {
			t.Errorf("after %d s %s logs %v: %q", tc.second, tc.by, tc.fields, wrong)
		}
	}
}

// TestFalseStatus plants what a status says, and finds what is false.
func TestFalseStatus(t *testing.T) {
	t.Setenv(SoakVariable, "1")
	for _, tc := range []struct {
		second    float64
		tolerated int
		lost      string // a member that is
		wrong     bool
	}{
		{15, 1, "", false},
		{20.5, 1, "", false}, // nobody knows yet
		{21.5, 1, "", true},
		{21.5, 0, "gw-3", false},
		{21.5, 0, "gw-2", true},
		{15, 0, "", true},
		{52, 1, "", true},
		{52, 0, "", false},
		{22, -1, "", false},
	} {
		f, began := scene()
		s := admin.Status{Gateway: admin.Gateway{Name: "gw-1", Ready: true}, Cluster: admin.Cluster{View: 1, Leader: "gw-1", Voters: 3, LossesTolerated: tc.tolerated}}
		for i := range 3 {
			name := fmt.Sprintf("gw-%d", i+1)
			m := admin.Member{Name: name, Self: i == 0, Votes: true, Status: admin.StatusAlive, LinkUp: true, Answers: true, Ready: true}
			if name == tc.lost {
				m.Status = admin.StatusLost
			}
			s.Cluster.Members = append(s.Cluster.Members, m)
		}
		asked := began.Add(time.Duration(tc.second * float64(time.Second)))
		if wrong := f.judgeStatus(told{"gw-1", asked, asked, &s}); (len(wrong) > 0) != tc.wrong {
			t.Errorf("after %v s, %d tolerated, %q lost: %q", tc.second, tc.tolerated, tc.lost, wrong)
		}
	}
}
