package places

import "testing"

func TestPlaces(t *testing.T) {
	p := New(3, 2)
	if !p.Take("x") || !p.Take("x") || p.Take("x") || !p.Take("y") || p.Take("z") {
		t.Error("two for one source, three in all")
	}
	p.GiveBack("x")
	if !p.Take("z") || p.Take("x") {
		t.Error("one place is free again")
	}
	for _, s := range []string{"x", "y", "z"} {
		p.GiveBack(s)
	}
	if len(p.held) != 0 || p.all != 0 {
		t.Errorf("%d places held by %v", p.all, p.held)
	}
}
