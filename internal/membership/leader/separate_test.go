package leader

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kgate/kgate/kmutex"
)

func TestSeparate(t *testing.T) {
	type nodes = []kmutex.Node
	for name, tt := range map[string]struct {
		down map[kmutex.Node][]kmutex.Node
		want nodes
	}{
		"all is well":                 {map[kmutex.Node][]kmutex.Node{1: nil, 2: nil, 3: nil}, nil},
		"two, the youngest":           {map[kmutex.Node][]kmutex.Node{1: nil, 2: {3}, 3: {2}}, nodes{3}},
		"one complains":               {map[kmutex.Node][]kmutex.Node{1: nil, 2: {3}, 3: nil}, nil},
		"the other does not renew":    {map[kmutex.Node][]kmutex.Node{1: nil, 2: {3}}, nil},
		"of oneself":                  {map[kmutex.Node][]kmutex.Node{1: {1}, 2: {2}}, nil},
		"the one with fewer links":    {map[kmutex.Node][]kmutex.Node{1: {2, 3}, 2: {1}, 3: {1}, 4: nil}, nodes{1}},
		"two pairs":                   {map[kmutex.Node][]kmutex.Node{1: {2}, 2: {1}, 3: {4}, 4: {3}}, nodes{2, 4}},
		"a chain":                     {map[kmutex.Node][]kmutex.Node{1: {2}, 2: {1, 3}, 3: {2, 4}, 4: {3}}, nodes{3, 2}},
		"halves that one sees across": {map[kmutex.Node][]kmutex.Node{1: {3, 4}, 2: {3, 4}, 3: {1, 2}, 4: {1, 2}, 5: nil}, nodes{3, 4}},
	} {
		slices.Sort(tt.want)
		if got := separate(tt.down); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Whoever is left has links to all others, and nobody goes without need.
func TestSeparateLeavesAClique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "members")
		down := make(map[kmutex.Node][]kmutex.Node)
		for a := range n {
			down[kmutex.Node(a+1)] = nil
			for b := range n {
				if rapid.IntRange(0, 3).Draw(t, "down") == 0 {
					down[kmutex.Node(a+1)] = append(down[kmutex.Node(a+1)], kmutex.Node(b+1))
				}
			}
		}
		broken := func(a, b kmutex.Node) bool {
			return a != b && slices.Contains(down[a], b) && slices.Contains(down[b], a)
		}
		out := separate(down)
		for a := range down {
			alone := true
			for b := range down {
				if broken(a, b) {
					alone = false
				}
				if broken(a, b) && !slices.Contains(out, a) && !slices.Contains(out, b) {
					t.Fatalf("%d and %d are left, without a link", a, b)
				}
			}
			if alone && slices.Contains(out, a) {
				t.Fatalf("%d goes, and has all its links", a)
			}
		}
	})
}
