package chordring

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func gateways(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("gw-%d", i)
	}
	return names
}

var someNames = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,6}`), 1, 40, rapid.ID)

// ownerByDefinition goes round the circle from the key, the slow way.
func ownerByDefinition(names []string, key string) string {
	from := identify(key)
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(identify(a).minus(from).compare(identify(b).minus(from)), cmp.Compare(a, b))
	})
}

// IV-B: "key k is assigned to the first node whose identifier is equal to or
// follows (the identifier of) k in the identifier space".
func TestOwnerIsSuccessorOfKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := someNames.Draw(t, "names")
		key := rapid.String().Draw(t, "key")
		if got, want := New(names).Owner(key), ownerByDefinition(names, key); got != want {
			t.Fatalf("owner %q, by the definition %q", got, want)
		}
	})
	for _, name := range gateways(20) { // equal to
		if got := New(gateways(20)).Owner(name); got != name {
			t.Errorf("owner of %q's own identifier is %q", name, got)
		}
	}
}

// IV-B: "when a node n joins the network, certain keys previously assigned to
// n's successor now become assigned to n. When node n leaves the network, all
// of its assigned keys are reassigned to n's successor. No other changes".
func TestJoinAndLeaveMoveOneArc(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := someNames.Draw(t, "names")
		newcomer := rapid.StringMatching(`[A-Z]{1,6}`).Draw(t, "newcomer")
		before, after := New(names), New(append(slices.Clone(names), newcomer))
		successor := after.Successors(newcomer, 1)[0]
		for i := range 200 {
			key := fmt.Sprint("key", i)
			was, is := before.Owner(key), after.Owner(key)
			if was != is && (is != newcomer || was != successor) {
				t.Fatalf("%s moved from %q to %q; newcomer %q, its successor %q", key, was, is, newcomer, successor)
			}
		}
	})
}

// Theorem 1: "each node is responsible for at most (1+e)K/N keys" with e of
// order O(log N), since a node is one point on the circle.
func TestKeysPerNode(t *testing.T) {
	const n, keys = 1000, 100_000
	r := New(gateways(n))
	count := make(map[string]int)
	for i := range keys {
		count[r.Owner(fmt.Sprint("key", i))]++
	}
	most := 0
	for _, c := range count {
		most = max(most, c)
	}
	if limit := int(float64(keys) / n * (1 + math.Log2(n))); most > limit {
		t.Errorf("a node owns %d keys, more than %d", most, limit)
	}
}

// IV-D, table I: finger[k] is the "first node on circle that succeeds
// (n + 2^(k-1)) mod 2^m, 1 <= k <= m"; "successor: the next node on the
// identifier circle; finger[1].node".
func TestFingersByDefinition(t *testing.T) {
	names := gateways(50)
	r := New(names)
	for _, name := range names[:10] {
		fingers := r.fingers(name)
		if len(fingers) != idBits {
			t.Fatalf("%d fingers", len(fingers))
		}
		for i, got := range fingers {
			start := identify(name)
			for range 1 << min(i, 4) { // add 2^i as a sum of equal parts
				start = start.plusPower(max(i-4, 0))
			}
			want := slices.MinFunc(names, func(a, b string) int {
				return identify(a).minus(start).compare(identify(b).minus(start))
			})
			if got != want {
				t.Fatalf("finger %d of %s is %s, want %s", i, name, got, want)
			}
		}
		if next := r.Successors(name, 1)[0]; fingers[0] != next {
			t.Errorf("first finger %s, successor %s", fingers[0], next)
		}
	}
}

// IV-D: a look-up goes to a finger that precedes the key, so it never passes the key; it comes to
// the key's predecessor and ends at the predecessor's successor, the owner.
func TestRouteNeverPassesKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := someNames.Draw(t, "names")
		r := New(names)
		from := rapid.SampledFrom(names).Draw(t, "from")
		// A key may lie exactly on a node.
		key := rapid.OneOf(rapid.String(), rapid.SampledFrom(names)).Draw(t, "key")
		path := r.Route(from, key)
		if path[0] != from || path[len(path)-1] != r.Owner(key) {
			t.Fatalf("path %q from %q to the owner %q", path, from, r.Owner(key))
		}
		if n := len(path); n > 1 && path[n-2] != r.predecessor(r.Owner(key)) {
			t.Fatalf("path %q does not come to the key's predecessor %q", path, r.predecessor(r.Owner(key)))
		}
		for i := 1; i < len(path); i++ {
			if i < len(path)-1 {
				before, now := identify(key).minus(identify(path[i-1])), identify(key).minus(identify(path[i]))
				if now.compare(before) >= 0 {
					t.Fatalf("hop %d of %q does not come closer to the key", i, path)
				}
			}
			if fingers := r.fingers(path[i-1]); !slices.Contains(fingers, path[i]) {
				t.Fatalf("hop %d of %q is no finger", i, path)
			}
		}
	})
}

// Theorem 2: "the number of nodes that must be contacted to find a successor
// in an N-node network is O(log N)"; section VI-C: the mean is 1/2 log2 N.
func TestRouteIsLogarithmic(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{16, 128, 1024, 10_000} {
		names := gateways(n)
		r := New(names)
		const lookups = 4000
		total, longest := 0, 0
		for range lookups {
			hops := len(r.Route(names[random.IntN(n)], fmt.Sprint(random.Uint64()))) - 1
			total += hops
			longest = max(longest, hops)
		}
		mean, lg := float64(total)/lookups, math.Log2(float64(n))
		t.Logf("n=%d: mean %.2f hops (half of log2 n is %.2f), longest %d", n, mean, lg/2, longest)
		if mean < lg/2-1 || mean > lg/2+1 {
			t.Errorf("n=%d: mean %.2f hops, want %.2f +- 1", n, mean, lg/2)
		}
		if float64(longest) > 2*lg {
			t.Errorf("n=%d: longest %d hops, want at most %.0f", n, longest, 2*lg)
		}
	}
}

// V-A: a successor list holds the next r nodes on the circle.
func TestSuccessorsGoRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := someNames.Draw(t, "names")
		r := New(names)
		name := rapid.SampledFrom(names).Draw(t, "name")
		all := r.Successors(name, len(names)+3)
		if len(all) != len(names)-1 || slices.Contains(all, name) {
			t.Fatalf("%d successors of %q among %d: %q", len(all), name, len(names), all)
		}
		for p := range len(all) {
			if !slices.Equal(r.Successors(name, p), all[:p]) {
				t.Fatalf("the nearest %d are %q, not the first of %q", p, r.Successors(name, p), all)
			}
		}
		for at := name; len(all) > 0; all = all[1:] {
			if r.predecessor(all[0]) != at {
				t.Fatalf("%q follows %q, whose predecessor is %q", all[0], at, r.predecessor(all[0]))
			}
			at = all[0]
		}
	})
}

// The ring without a lost gateway still tells its successors: they are the same as before, and its
// keys go to the first.
func TestSuccessorsOfOneThatIsGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := someNames.Draw(t, "names")
		gone := rapid.SampledFrom(names).Draw(t, "gone")
		before := New(names)
		after := New(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == gone }))
		if got, want := after.Successors(gone, 3), before.Successors(gone, 3); !slices.Equal(got, want) {
			t.Fatalf("successors %q, before %q", got, want)
		}
		if len(after.nodes) > 0 && after.Owner(gone) != after.Successors(gone, 1)[0] {
			t.Fatal("the first heir does not own what was the gateway's")
		}
		if len(after.nodes) > 0 && after.predecessor(gone) != before.predecessor(gone) {
			t.Fatal("another predecessor")
		}
	})
}

// fingers returns the finger table of a gateway: entry i is the first gateway
// at or after its identifier + 2^i, for i = 0..159 (the paper, table I, counts
// from 1). Entry 0 is its successor. It returns nil for a name that is not on
// the ring.
func (r *Ring) fingers(name string) []string {
	at, ok := r.at[name]
	if !ok {
		return nil
	}
	fingers := make([]string, idBits)
	for i := range fingers {
		fingers[i] = r.nodes[r.finger(at, i)].name
	}
	return fingers
}

// predecessor returns the gateway before name, counter-clockwise: the name
// itself if it is alone, "" if the ring is empty. The name need not be on the
// ring.
func (r *Ring) predecessor(name string) string {
	if len(r.nodes) == 0 {
		return ""
	}
	i, _ := r.place(name)
	return r.nodes[(i-1+len(r.nodes))%len(r.nodes)].name
}
