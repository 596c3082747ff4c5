package chordring

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// idBits is m of the paper: the length of an identifier.
const idBits = 8 * len(identifier{})

func TestOrderDoesNotCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := someNames.Draw(t, "names")
		mixed := append(slices.Clone(names), names[0])
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(mixed), func(i, j int) {
			mixed[i], mixed[j] = mixed[j], mixed[i]
		})
		a, b := New(names), New(mixed)
		if !slices.Equal(a.Names(), b.Names()) || len(b.nodes) != len(names) {
			t.Fatalf("rings of %q and %q differ", names, mixed)
		}
	})
}

func TestEmptyAndAlone(t *testing.T) {
	none := New(nil)
	if none.Owner("k") != "" || none.predecessor("a") != "" || none.Successors("a", 2) != nil ||
		none.fingers("a") != nil || none.Route("a", "k") != nil || len(none.nodes) != 0 {
		t.Error("an empty ring answers")
	}
	one := New([]string{"a"})
	if one.Owner("k") != "a" || one.predecessor("a") != "a" || one.Successors("a", 2) != nil {
		t.Error("a ring of one does not own everything")
	}
	if got := one.Route("a", "k"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("route %q", got)
	}
	if got := one.Successors("b", 2); !slices.Equal(got, []string{"a"}) {
		t.Errorf("successors of one that is not there: %q", got)
	}
	if one.Successors("a", -1) != nil {
		t.Error("a negative number of successors")
	}
}

// Names with the same identifier are ordered by name, and each has its place.
func TestTies(t *testing.T) {
	same := func(string) identifier { return identifier{7} }
	r := newRing([]string{"c", "a", "b"}, same)
	if got := r.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("order %q", got)
	}
	if r.Owner("k") != "a" || r.predecessor("a") != "c" || r.predecessor("c") != "b" {
		t.Error("ties are not in order of name")
	}
	if got := r.Successors("b", 5); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("successors %q", got)
	}
	for _, from := range r.Names() {
		if path := r.Route(from, "k"); path[len(path)-1] != "a" {
			t.Errorf("route %q", path)
		}
	}
}

func TestArithmetic(t *testing.T) {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(idBits))
	number := func(a identifier) *big.Int { return new(big.Int).SetBytes(a[:]) }
	rapid.Check(t, func(t *rapid.T) {
		a := identifier(rapid.SliceOfN(rapid.Byte(), len(identifier{}), len(identifier{})).Draw(t, "a"))
		b := identifier(rapid.SliceOfN(rapid.Byte(), len(identifier{}), len(identifier{})).Draw(t, "b"))
		i := rapid.IntRange(0, idBits-1).Draw(t, "i")
		sum := new(big.Int).Add(number(a), new(big.Int).Lsh(big.NewInt(1), uint(i)))
		if number(a.plusPower(i)).Cmp(sum.Mod(sum, modulus)) != 0 {
			t.Fatalf("%v + 2^%d = %v", a, i, a.plusPower(i))
		}
		difference := new(big.Int).Sub(number(a), number(b))
		if number(a.minus(b)).Cmp(difference.Mod(difference, modulus)) != 0 {
			t.Fatalf("%v - %v = %v", a, b, a.minus(b))
		}
		if a.log2() != number(a).BitLen()-1 {
			t.Fatalf("log2 %v = %d", a, a.log2())
		}
	})
	full := identifier{}
	for i := range full {
		full[i] = 255
	}
	if full.plusPower(0) != (identifier{}) || (identifier{}).minus(identifier{19: 1}) != full || (identifier{}).log2() != -1 {
		t.Error("arithmetic at the end of the circle")
	}
}

func BenchmarkNew10000(b *testing.B) {
	names := gateways(10_000)
	for b.Loop() {
		New(names)
	}
}

func BenchmarkOwner(b *testing.B) {
	for _, n := range []int{3, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := New(gateways(n))
			for b.Loop() {
				r.Owner("downloads")
			}
		})
	}
}

func BenchmarkRoute10000(b *testing.B) {
	r := New(gateways(10_000))
	for b.Loop() {
		r.Route("gw-1", "downloads")
	}
}
