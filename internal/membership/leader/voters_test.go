package leader

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kgate/kgate/kmutex"
)

// readServers reads a description: each word is a server, upper case if it votes,
// followed by marks: * leads, - suspected, ! lost, ? pending, ~ away, x left in order,
// = no member for another reason.
func readServers(text string) []Server {
	var servers []Server
	for i, word := range strings.Fields(text) {
		name := word[:1]
		s := Server{ID: strings.ToLower(name), Voter: strings.ToUpper(name) == name, Node: kmutex.Node(i + 1), Alive: true}
		for _, mark := range word[1:] {
			switch mark {
			case '*':
				s.Leader = true
			case '-':
				s.Alive = false
			case '!':
				s.Alive, s.Failed = false, true
			case '?':
				s.Pending, s.Node = true, 0
			case 'x':
				s.Left, s.Node = true, 0
			case '=':
				s.Node = 0
			case '~':
				s.Away, s.Node, s.Alive = true, 0, false
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
		{"A* B", "demote b"},          // one of three has left
		{"A* B C D", "demote d"},      // one of five has left: the youngest
		{"A* B- C D", "demote b"},     // rather a suspected one
		{"A* B! C-", ""},              // a suspicion alone moves no vote, nor can one be moved
		{"A* B! C", ""},               // nobody to take it
		{"A* B! C d", "promote d"},    // first give the vote, then take it
		{"A* B! C D", "demote b"},     //
		{"A* B! C d-", ""},            // not to a suspected one
		{"A* B- C d", ""},             // suspected, but not for long
		{"A* B- c-", ""},              //
		{"A* B- c d", "promote c"},    // two of three voters are alive afterwards
		{"A* bx", "remove b"},         //
		{"A* b? c", ""},               // a bootstrap server that has not joined yet stays
		{"A* B? C?", ""},              // a cluster that just started
		{"A* B C?", ""},               // nobody loses a vote for it meanwhile
		{"A*? B C", ""},               // the leader itself is kept out for a moment
		{"A* B C~", ""},               // it may come back: the others keep their votes
		{"A* B C~ d", ""},             // gone for a moment
		{"A* B C~! d", "promote d"},   // gone for long: its vote goes to another
		{"A* B C~! D", "demote c"},    //
		{"A*x B C", "demote c"},       // the leader never removes itself; a pair has one vote beside it
		{"A* Bx C", "remove b"},       // stopped in order: two are left, a pair
		{"A* bx C", "remove b"},       //
		{"A* Bx- C- D", "remove b"},   // a majority of the rest is alive
		{"A* Bx C- D- E", "demote d"}, // without b, 2 of 4 would be alive: first one of the dead
		{"A* Bx C=!", "demote c"},     // b leaves while c is lost: without c's vote a could not go on
		{"A* Bx c=!", "remove b"},     //
		{"A* Bx C~- d~-", "demote c"}, // the second of five that leaves, with two just lost
		{"A* Bx C~", "demote c"},      //
		{"A* Bx C-", "demote c"},      //

		// Three votes stay three, however long one of them is lost.
		{"A* B C=!", ""},
		{"A* B C=! d=!", "remove d"},   // nobody waits for one without a vote
		{"A* B C=! d", "promote d"},    // somebody takes its vote
		{"A* B C=! D", "remove c"},     //
		{"A* B C=! d e", "promote d"},  // a newcomer each; c is not counted
		{"A* B C=! D e", "remove c"},   //
		{"A* B C=! d-", ""},            //
		{"A* B C D=! E=!", "remove d"}, // five become three
		{"A* B C E=!", "remove e"},     //
		{"A* B C D E=!", "remove e"},   // and so do those of four members
		{"A* B C D", "demote d"},       //
		{"A* B=! c", "remove b"},       // not of two, which are a pair
		{"A* B=!- C", ""},              //
		{"A* b=!", "remove b"},         //
		// One that has started again without a memory, as d: the votes do not become fewer.
		{"A* B C=! d", "promote d"},
		{"A* B C=! D", "remove c"},
		{"A* B C=! d=! e", "remove d"}, // twice
	} {
		got := NextStep(readServers(tt.servers))
		if text := strings.TrimSpace(fmt.Sprint(got.Do, " ", got.Server)); text != tt.want {
			t.Errorf("%-18s: %q, want %q", tt.servers, text, tt.want)
		}
	}
}

func TestTakeOut(t *testing.T) {
	for _, tt := range []struct{ servers, out, want string }{
		{"A* B C", "b", "remove b"},
		{"A* B C=!", "c", "remove c"},
		{"A* B C=!", "b", "demote c"}, // then a majority is left
		{"A* B c=!", "b", "remove b"},
		{"A* B- C-", "b", ""}, // nothing can be agreed on
		{"A* B C- D- E", "b", "demote d"},
		{"A* B C", "d", ""},
	} {
		got := TakeOut(readServers(tt.servers), tt.out)
		if text := strings.TrimSpace(fmt.Sprint(got.Do, " ", got.Server)); text != tt.want {
			t.Errorf("%s out of %-12s: %q, want %q", tt.out, tt.servers, text, tt.want)
		}
	}
}

// From any configuration, step by step, the voters come to the odd number that
// the members allow, and every step on the way can be committed. Where there are three
// votes or more without those that have left, there never are fewer than three.
func TestStepsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "servers")
		servers := make([]Server, n)
		for i := range servers {
			servers[i] = Server{
				ID: fmt.Sprint(i), Node: kmutex.Node(i + 1), Alive: true,
				Voter: rapid.Bool().Draw(t, "votes"),
			}
			if i > 0 && rapid.IntRange(0, 3).Draw(t, "member") == 0 {
				servers[i].Node = 0
				servers[i].Left = rapid.Bool().Draw(t, "left")
			}
			if i > 0 && rapid.IntRange(0, 4).Draw(t, "dead") == 0 {
				servers[i].Alive, servers[i].Failed = false, true
			}
		}
		servers[0].Leader, servers[0].Voter = true, true
		if !committable(servers, Step{}) {
			return // no leader could be there
		}
		least := min(stay(servers), leastVoters)
		for range 40 {
			s := NextStep(servers)
			if s.Do == Nothing {
				break
			}
			if !committable(servers, s) {
				t.Fatalf("step %v cannot be committed: %+v", s, servers)
			}
			before := servers
			servers = carryOut(t, servers, s)
			if slices.ContainsFunc(before, func(s Server) bool { return s.Left && s.Voter && !committable(before, Step{Remove, s.ID}) }) {
				least = 0 // one that leaves may take along the votes of those that are lost
			}
			if least == leastVoters && stay(servers) < least {
				t.Fatalf("step %v leaves fewer than three votes: %+v", s, before)
			}
		}
		if s := NextStep(servers); s.Do != Nothing {
			t.Fatalf("no end: %v in %+v", s, servers)
		}
		members, voters, living := 0, 0, 0
		for _, s := range servers {
			if s.Node != 0 {
				members++
				if s.Alive {
					living++
				}
			}
			if s.Voter {
				voters++
			}
		}
		want := VoterTarget(members)
		if least == leastVoters {
			want = max(want, least)
		}
		if living == members && voters != want && least > 0 {
			t.Fatalf("%d voters of %d members, want %d: %+v", voters, members, want, servers)
		}
	})
}

// stay counts the votes that nobody has taken away.
func stay(servers []Server) (n int) {
	for _, s := range servers {
		if s.Voter && !s.Left {
			n++
		}
	}
	return n
}

func carryOut(t *rapid.T, servers []Server, s Step) []Server {
	var after []Server
	for _, have := range servers {
		if have.ID != s.Server {
			after = append(after, have)
			continue
		}
		if have.Leader {
			t.Fatalf("the leader is to %v itself", s)
		}
		switch s.Do {
		case Promote:
			have.Voter = true
		case Demote:
			have.Voter = false
		default:
			continue
		}
		after = append(after, have)
	}
	return after
}

func TestVoterTarget(t *testing.T) {
	for n, want := range []int{1, 1, 1, 3, 3, 5, 5, 5, 5} {
		if got := VoterTarget(n); got != want {
			t.Errorf("%d members: %d voters, want %d", n, got, want)
		}
	}
}
