package membership

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/kgate/kgate/kmutex"
)

// servers reads a description: each word is a server, upper case if it votes,
// followed by marks: * leads, - suspected, ! lost, ? pending, x no member, ~ away.
func readServers(text string) []server {
	var servers []server
	for i, word := range strings.Fields(text) {
		name := word[:1]
		s := server{id: raft.ServerID(strings.ToLower(name)), voter: strings.ToUpper(name) == name, node: kmutex.Node(i + 1), alive: true}
		for _, mark := range word[1:] {
			switch mark {
			case '*':
				s.leader = true
			case '-':
				s.alive = false
			case '!':
				s.alive, s.failed = false, true
			case '?':
				s.pending, s.node = true, 0
			case 'x':
				s.node = 0
			case '~':
				s.away, s.node, s.alive = true, 0, false
			}
		}
		servers = append(servers, s)
	}
	return servers
}

func TestNextStep(t *testing.T) {
	for _, tt := range []struct{ servers, want string }{
		{"A*", ""},
		{"A* b", ""},            // a pair has one voter
		{"A* b c", "promote b"}, // three members, three voters, the oldest first
		{"A* B c", "promote c"}, //
		{"A* B C", ""},          //
		{"A* B C d", ""},        // an even number of voters is worth nothing
		{"A* B C d e", "promote d"},
		{"A* B C D e", "promote e"},
		{"A* B C D E f g", ""},
		{"A* B", "demote b"},          // one of three left
		{"A* B C D", "demote d"},      // one of five left: the youngest
		{"A* B- C D", "demote b"},     // rather a suspected one
		{"A* B! C-", ""},              // a suspicion alone moves no vote, nor can one be moved
		{"A* B! C", ""},               // nobody to take it
		{"A* B! C d", "promote d"},    // first give the vote, then take it
		{"A* B! C D", "demote b"},     //
		{"A* B! C d-", ""},            // not to a suspected one
		{"A* B- C d", ""},             // suspected, but not for long
		{"A* B- c-", ""},              //
		{"A* B- c d", "promote c"},    // two of three voters are alive afterwards
		{"A* Bx C", "remove b"},       // no member any more
		{"A* Bx- C- D", "remove b"},   // a majority of the rest is alive
		{"A* Bx C- D- E", "demote d"}, // without b, 2 of 4 would be alive: first one of the dead
		{"A* bx", "remove b"},         //
		{"A* b? c", ""},               // a bootstrap server that has not joined yet stays
		{"A* B? C?", ""},              // a cluster that just started
		{"A* B C~", ""},               // it may come back: the others keep their votes
		{"A* B C~ d", ""},             // gone for a moment
		{"A* B C~! d", "promote d"},   // gone for long: its vote goes to another
		{"A* B C~! D", "demote c"},    //
		{"A*x B C", "demote c"},       // the leader never removes itself; a pair has one vote beside it
	} {
		got := nextStep(readServers(tt.servers))
		if text := strings.TrimSpace(fmt.Sprint(got.do, " ", got.server)); text != tt.want {
			t.Errorf("%-18s: %q, want %q", tt.servers, text, tt.want)
		}
	}
}

// From any configuration, step by step, the voters come to the odd number that
// the members allow, and every step on the way can be committed.
func TestStepsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "servers")
		servers := make([]server, n)
		for i := range servers {
			servers[i] = server{
				id: raft.ServerID(fmt.Sprint(i)), node: kmutex.Node(i + 1), alive: true,
				voter: rapid.Bool().Draw(t, "votes"),
			}
			if i > 0 && rapid.IntRange(0, 3).Draw(t, "member") == 0 {
				servers[i].node = 0
			}
			if i > 0 && rapid.IntRange(0, 4).Draw(t, "dead") == 0 {
				servers[i].alive, servers[i].failed = false, true
			}
		}
		servers[0].leader, servers[0].voter = true, true
		if !committable(servers, step{}) {
			return // no leader could be there
		}
		for range 40 {
			s := nextStep(servers)
			if s.do == nothing {
				break
			}
			if !committable(servers, s) {
				t.Fatalf("step %v cannot be committed: %+v", s, servers)
			}
			servers = carryOut(t, servers, s)
		}
		if s := nextStep(servers); s.do != nothing {
			t.Fatalf("no end: %v in %+v", s, servers)
		}
		members, voters, living := 0, 0, 0
		for _, s := range servers {
			if s.node != 0 {
				members++
				if s.alive {
					living++
				}
			}
			if s.voter {
				voters++
			}
		}
		if want := voterTarget(members); living == members && voters != want {
			t.Fatalf("%d voters of %d members, want %d: %+v", voters, members, want, servers)
		}
	})
}

func carryOut(t *rapid.T, servers []server, s step) []server {
	var after []server
	for _, have := range servers {
		if have.id != s.server {
			after = append(after, have)
			continue
		}
		if have.leader {
			t.Fatalf("the leader is to %v itself", s)
		}
		switch s.do {
		case promote:
			have.voter = true
		case demote:
			have.voter = false
		default:
			continue
		}
		after = append(after, have)
	}
	return after
}

func TestVoterTarget(t *testing.T) {
	for n, want := range []int{1, 1, 1, 3, 3, 5, 5, 5, 5} {
		if got := voterTarget(n); got != want {
			t.Errorf("%d members: %d voters, want %d", n, got, want)
		}
	}
}
