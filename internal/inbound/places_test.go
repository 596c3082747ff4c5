package inbound

import "testing"

func TestPlaces(t *testing.T) {
	p := NewPlaces(3, 2)
	for i, want := range []struct {
		source string
		taken  bool
	}{{"x", true}, {"x", true}, {"x", false}, {"y", true}, {"z", false}} {
		if p.Take(want.source) != want.taken {
			t.Errorf("place %d, for %q: want %v: two for one source, three in all", i, want.source, want.taken)
		}
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
