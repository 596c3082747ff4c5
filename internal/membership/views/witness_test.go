package views

import (
	"slices"
	"testing"

	"github.com/kgate/kgate/kmutex"
)

func witness(boot string) Command {
	c := join("w", boot)
	c.Join.Witness = true
	return c
}

// A witness comes and goes without an epoch: it is nobody's home or successor, and owes
// nothing.
func TestWitnessHasNoPartInPools(t *testing.T) {
	var s state
	for i, step := range []struct {
		command Command
		want    string
	}{
		{witness("x"), "1 w:1"},
		{join("a", "x"), "2 w:1 a:2"},
		{poolOf("p", 3), "3 w:1 a:2 p:3@1/2"},
		{join("b", "x"), "4 w:1 a:2 b:4 p:3@1/2"},
		{suspend(1), "5 a:2 b:4 p:3@1/2"},
		{witness("y"), "6 a:2 b:4 w:6 p:3@1/2"},
		{suspend(4, 6), "7 a:2 p:3@2/2"},
		{witness("z"), "8 a:2 w:8 p:3@2/2"},
		{suspend(2), "9 w:8 p:3@3/0"},
		{join("a", "y"), "10 w:8 a:10 p:3@4/10"},
	} {
		if _, err := s.Apply(uint64(i+1), step.command); err != nil {
			t.Fatal(err)
		}
		if got := describe(&s); got != step.want {
			t.Fatalf("after command %d: %s, want %s", i+1, got, step.want)
		}
	}
	v := s.view()
	if p, _ := v.Pool("p"); !slices.Equal(p.Owed, []kmutex.Node{2, 4}) {
		t.Errorf("%v owe tokens", p.Owed)
	}
	for _, l := range v.Lost {
		if l.Witness != (l.Name == "w") || l.Leased == l.Witness {
			t.Errorf("%+v", l)
		}
		if l.Successor != 10 {
			t.Errorf("the successor of %s is node %d", l.Name, l.Successor)
		}
	}
}
