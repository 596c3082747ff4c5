package netns

import (
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// TestWitness breaks the links between two gateways and a witness: each of the three is cut
// off, and each pair, both ways and one way. While the fault lasts never more than k are in
// flight, and those that can go on do, as with three gateways.
func TestWitness(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const (
		a, b, witness = 0, 1, 2
		both          = 2
	)
	w := startWorld(t, New(t, both+1), cluster.Options{Gateways: both + 1, Witness: true, Lease: lease})
	deaf := func(from, to int) []Way { return []Way{{from, to, Drop}} }
	cut := func(one int, others ...int) []Way { return Split(Drop, []int{one}, others) }
	// One of two gateways may lead and have all tokens. Then an election comes first, and the
	// tokens when its lease has run out: that is slow, too.
	for _, f := range []struct {
		scenario
		ways   []Way
		refuse []int
	}{
		{scenario{name: "gw-1 is cut off", serve: 1, slow: true}, cut(a, b, witness), []int{a}},
		{scenario{name: "gw-2 is cut off", serve: 1, slow: true, long: true}, cut(b, a, witness), []int{b}},
		{scenario{name: "the witness is cut off", serve: 2, calm: true}, cut(witness, a, b), nil},
		{scenario{name: "gw-1 and the witness do not reach each other", serve: 2, calm: true, long: true}, cut(a, witness), nil},
		{scenario{name: "gw-2 and the witness do not reach each other", serve: 2, calm: true, long: true}, cut(b, witness), nil},
		{scenario{name: "the gateways do not reach each other", serve: 1, slow: true}, cut(a, b), nil},
		{scenario{name: "gw-1 does not hear gw-2", serve: 1, slow: true}, deaf(b, a), nil},
		{scenario{name: "gw-2 does not hear gw-1", serve: 1, slow: true, long: true}, deaf(a, b), nil},
		{scenario{name: "gw-1 does not hear the witness", serve: 2, calm: true, long: true}, deaf(witness, a), nil},
		{scenario{name: "gw-2 does not hear the witness", serve: 2, calm: true, long: true}, deaf(witness, b), nil},
		{scenario{name: "the witness does not hear gw-1", serve: 2, calm: true}, deaf(a, witness), nil},
		{scenario{name: "the witness does not hear gw-2", serve: 2, calm: true, long: true}, deaf(b, witness), nil},
		{scenario{name: "gw-1 hears nobody", serve: 1, slow: true, long: true}, append(deaf(b, a), deaf(witness, a)...), []int{a}},
		{scenario{name: "nobody hears gw-1", serve: 1, slow: true, long: true}, append(deaf(a, b), deaf(a, witness)...), []int{a}},
		{scenario{name: "gw-2 hears nobody", serve: 1, slow: true, long: true}, append(deaf(a, b), deaf(witness, b)...), []int{b}},
		{scenario{name: "nobody hears gw-2", serve: 1, slow: true, long: true}, append(deaf(b, a), deaf(b, witness)...), []int{b}},
		{scenario{name: "the witness hears nobody", serve: 2, calm: true, long: true}, append(deaf(a, witness), deaf(b, witness)...), nil},
		{scenario{name: "nobody hears the witness", serve: 2, calm: true, long: true}, append(deaf(witness, a), deaf(witness, b)...), nil},
		{scenario{name: "the gateways refuse each other with resets", serve: 1, slow: true, long: true}, Split(Reset, []int{a}, []int{b}), nil},
		{scenario{name: "every link is broken", serve: 0, long: true}, Split(Drop, []int{a}, []int{b}, []int{witness}), []int{a, b}},
	} {
		if f.long && !cluster.Soak() {
			continue
		}
		f.cut = func(cluster.Roles) ([]Way, []int) { return f.ways, f.refuse }
		t.Run(f.name, func(t *testing.T) { w.suffer(t, f.scenario) })
	}
	w.checkK(t)
}
