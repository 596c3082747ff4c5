package views

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

func suspend(nodes ...kmutex.Node) Command { return Command{Suspend: &Suspend{Nodes: nodes}} }

func taken(reason string, node kmutex.Node) Command {
	return Command{Suspend: &Suspend{Nodes: []kmutex.Node{node}, Reasons: []string{reason}}}
}

func expire(nodes ...kmutex.Node) Command { return Command{Expire: &Expire{Nodes: nodes}} }

func returned(pool string, nodes ...kmutex.Node) Command {
	return Command{Return: &Return{Pool: pool, Nodes: nodes}}
}

func holding(name string) Command {
	return Command{Define: &Define{Name: name, K: 3, Binding: admission.BindingLate, Reclaim: admission.ReclaimHold, HoldMax: time.Minute}}
}

func voiding(name, boot string, node kmutex.Node) Command {
	c := join(name, boot)
	c.Join.Voided = node
	return c
}

func recovered(pool string, epoch uint64) Command {
	return Command{Recover: &Recover{Pool: pool, Epoch: epoch}}
}

// losses writes what a view says of lost members short: node>successor, * leased,
// and of pools: name@epoch-owed.
func losses(v *View) string {
	var b strings.Builder
	for _, l := range v.Lost {
		fmt.Fprintf(&b, "%d>%d", l.Node, l.Successor)
		if l.Leased {
			b.WriteString("*")
		}
		b.WriteString(" ")
	}
	for _, p := range v.Pools {
		fmt.Fprintf(&b, "%s@%d%v ", p.Name, p.Epoch, p.Owed)
	}
	return strings.TrimSpace(b.String())
}

// On the ring a comes before b, b before c, c before d, and d before a.
var ring = ringOf([]Member{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}})

func TestLosses(t *testing.T) {
	// The four gateways in the order of the ring, nodes 1 to 4, whatever their
	// names; pool p is entry 5.
	names := ring.Names()
	four := []Command{join(names[0], "x"), join(names[1], "x"), join(names[2], "x"), join(names[3], "x"), poolOf("p", 3)}
	for _, tt := range []struct {
		name     string
		commands []Command // after the first five, from index 6
		want     string
	}{
		{"a loss", []Command{suspend(2)}, "2>3* p@2[2]"},
		{"two at once are one epoch", []Command{suspend(2, 3)}, "2>4* 3>4* p@2[2 3]"},
		{"twice is once", []Command{suspend(2), suspend(2)}, "2>3* p@2[2]"},
		{"nobody", []Command{suspend(9), suspend(), expire(9), expire(1)}, "p@1[]"},
		{"expired", []Command{suspend(2), expire(2)}, "2>3 p@3[]"},
		{"expired with another", []Command{suspend(2), suspend(3), expire(2)}, "2>4 3>4* p@4[3]"},
		{"expired twice", []Command{suspend(2), expire(2), expire(2)}, "2>3 p@3[]"},
		{"a member cannot expire", []Command{expire(2)}, "p@1[]"},
		{"left in order", []Command{drop1(2)}, "2>3 p@2[]"},
		{"the successor is lost as well", []Command{suspend(2), suspend(3)}, "2>4* 3>4* p@3[2 3]"},
		{"the successor is lost, somebody came between", []Command{suspend(2), voiding(names[1], "y", 0), suspend(3)}, "2>4* 3>4* p@3[2 3]"},
		{"the last one is successor of all", []Command{suspend(1, 2, 3)}, "1>4* 2>4* 3>4* p@2[1 2 3]"},
		{"nobody is left", []Command{suspend(1, 2, 3, 4)}, "1>0* 2>0* 3>0* 4>0* p@2[1 2 3 4]"},
		{"nobody was left, then one comes", []Command{suspend(1, 2, 3, 4), join(names[2], "y")}, "1>7* 2>7* 3>7* 4>7* p@3[1 2 3 4]"},
		{"a restart owes", []Command{join(names[1], "y")}, "2>3* p@2[2]"},
		{"a restart is not its own successor", []Command{suspend(3, 4, 1), join(names[1], "y")}, "3>7* 4>7* 1>7* 2>7* p@3[1 2 3 4]"},
		{"voided owes nothing", []Command{voiding(names[1], "x.1", 2)}, "2>3 p@2[]"},
		{"voided later", []Command{suspend(2), voiding(names[1], "x.1", 2)}, "2>3 p@3[]"},
		{"voided by another name", []Command{suspend(2), voiding("z", "x", 2)}, "2>3* p@2[2]"},
		{"voided is not a member", []Command{voiding("z", "x", 2)}, "p@1[]"},
		{"longest hold", []Command{holding("q"), suspend(2), expire(2)}, "2>3 p@3[] q@2[2]"},
		{"longest hold is over", []Command{holding("q"), suspend(2), expire(2), returned("q", 2)}, "2>3 p@3[] q@3[]"},
		{"longest hold ends not before the lease", []Command{holding("q"), suspend(2), returned("q", 2)}, "2>3* p@2[2] q@2[2]"},
		{"longest hold outlasts voiding", []Command{holding("q"), suspend(2), voiding(names[1], "x.1", 2)}, "2>3 p@3[] q@2[2]"},
		{"returned to whom it is not owed", []Command{suspend(2), expire(2), returned("p", 2)}, "2>3 p@3[]"},
		{"recovered", []Command{recovered("p", 1)}, "p@2[]"},
		{"recovered once", []Command{recovered("p", 1), recovered("p", 1)}, "p@2[]"},
		{"what is owed stays over other epochs", []Command{suspend(2), recovered("p", 2), setK("p", 9)}, "2>3* p@4[2]"},
		{"a pool defined later is owed nothing", []Command{suspend(2), poolOf("q", 1)}, "2>3* p@2[2] q@1[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s state
			for i, c := range append(slices.Clone(four), tt.commands...) {
				if _, err := s.Apply(uint64(i+1), c); err != nil {
					t.Fatalf("command %d: %v", i+1, err)
				}
			}
			if got := losses(s.view()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What a lost gateway left goes from successor to successor, as its copies do: a newcomer
// beside it has nothing of it.
func TestSuccessorsOfSuccessors(t *testing.T) {
	names := ringOf([]Member{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}).Names()
	var s state
	for i, c := range []Command{
		join(names[0], "x"), join(names[1], "x"), join(names[3], "x"), join(names[4], "x"), // 1 to 4
		suspend(2),          // its successor is 3
		join(names[2], "x"), // 6, between them
		suspend(3),          // its successor is 4
	} {
		if _, err := s.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	if got := losses(s.view()); got != "2>4* 3>4*" {
		t.Errorf("got %s", got)
	}
}

// Whatever a leader writes into a reason, a view keeps a bounded line of it.
func TestReasonsOfLosses(t *testing.T) {
	var s state
	for i, c := range []Command{
		join("a", "x"), join("b", "x"), join("c", "x"), join("d", "x"),
		{Suspend: &Suspend{Nodes: []kmutex.Node{1, 2}, Reasons: []string{strings.Repeat("é", maxReason)}}},
		drop1(3), join("d", "y"),
		taken("a leader's word for one that is lost", 2), taken(ByOperator+", at d", 2), taken(ByOperator+", at e", 2),
	} {
		if _, err := s.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	want := map[kmutex.Node]string{
		1: strings.Repeat("é", maxReason/2), 2: ByOperator + ", at d", 3: "it was stopped in order", 4: "it has joined again as another incarnation",
	}
	for node, reason := range want {
		if l, _ := s.view().LostMember(node); l.Reason != reason {
			t.Errorf("node %d: %q, want %q", node, l.Reason, reason)
		}
	}
}

func TestLostIncarnationStaysOut(t *testing.T) {
	var s state
	for i, c := range []Command{join("a", "x"), join("b", "x"), suspend(2)} {
		if _, err := s.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := s.Apply(4, join("b", "x")); !errors.Is(err, ErrCommand) || changed {
		t.Errorf("the lost incarnation is let in again: %v, %v", changed, err)
	}
}

func TestSetKKnowsWhatItWas(t *testing.T) {
	var s state
	set := func(index uint64, k, was int) (bool, error) {
		return s.Apply(index, Command{SetK: &SetK{Name: "p", K: k, Was: was}})
	}
	if _, err := s.Apply(1, poolOf("p", 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := set(2, 5, 4); !errors.Is(err, ErrConflict) || s.Pools[0].K != 3 {
		t.Errorf("%v, k %d", err, s.Pools[0].K)
	}
	for i, want := range []bool{true, false} { // the second try of a command whose answer was lost
		if changed, err := set(uint64(3+i), 5, 3); err != nil || changed != want || s.Pools[0].K != 5 {
			t.Errorf("%v, %v, k %d", changed, err, s.Pools[0].K)
		}
	}
}

func TestLostIsBounded(t *testing.T) {
	s := state{View: View{Members: []Member{{Node: maxLost + 1, Name: "a", Boot: "old"}}}}
	for i := range maxLost {
		s.Lost = append(s.Lost, Lost{Node: kmutex.Node(i + 1), Name: "b", Successor: maxLost + 1})
	}
	if _, err := s.Apply(maxLost+2, join("a", "new")); err != nil {
		t.Fatal(err)
	}
	v := s.view()
	if len(v.Lost) != maxLost || v.Lost[0].Node != 2 || v.Lost[maxLost-1].Node != maxLost+1 {
		t.Errorf("%d lost, from %+v to %+v", len(v.Lost), v.Lost[0], v.Lost[len(v.Lost)-1])
	}
}

// What a member that has been forgotten owes still comes back.
func TestForgottenExpires(t *testing.T) {
	s := state{View: View{
		Members: []Member{{Node: 9, Name: "a"}},
		Pools:   []Pool{{Name: "p", K: 1, Epoch: 2, Reclaim: admission.ReclaimLease, Owed: []kmutex.Node{3}}},
	}}
	if nodes := s.view().Leased(); !slices.Equal(nodes, []kmutex.Node{3}) {
		t.Errorf("leased %v", nodes)
	}
	if changed, err := s.Apply(10, expire(3)); !changed || err != nil || len(s.Pools[0].Owed) != 0 || s.Pools[0].Epoch != 3 {
		t.Errorf("%v, %v, %+v", changed, err, s.Pools[0])
	}
}

func TestSuccessor(t *testing.T) {
	v := &View{Members: []Member{{Node: 5}}, Lost: []Lost{{Node: 1, Successor: 5}, {Node: 2}}}
	for node, want := range map[kmutex.Node]kmutex.Node{5: 5, 1: 5, 2: 0, 3: 0} {
		if successor, ok := v.Successor(node); successor != want || ok != (want != 0) {
			t.Errorf("successor of %d: %d, %v", node, successor, ok)
		}
	}
}
