package views

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

const (
	urlA = "http://10.0.2.1:8000"
	urlB = "http://10.0.2.2:8000"
)

func classed(t *testing.T) *state {
	t.Helper()
	s := new(state)
	define := Define{
		Name: "llm", K: 6, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease,
		Classes: []Class{{Upstream: urlA, K: 2}, {Upstream: urlB, K: 4}},
	}
	if _, err := s.Apply(1, Command{Define: &define}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClassNumbers: no number is of two classes, a class has at least its k, and a number stays
// with its class until the count says that nobody has it.
func TestClassNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := classed(t)
	urls := []string{urlA, urlB, "http://c", "http://d"}
	for i := uint64(2); i < 3000; i++ {
		before := slices.Clone(s.Pools[0].Classes)
		c := Command{SetK: &SetK{Name: "llm", Upstream: urls[r.IntN(len(urls))], K: r.IntN(5)}}
		whole := false
		if r.IntN(3) == 0 {
			whole = r.IntN(2) == 0
			c = Command{Recover: &Recover{Pool: "llm", Epoch: s.Pools[0].Epoch, Whole: whole}}
		} else if r.IntN(3) == 0 {
			r.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
			c = Command{SetServers: &SetServers{Pool: "llm", Epoch: s.Pools[0].Epoch, Name: "http://name", Servers: urls[:r.IntN(4)], K: 1 + r.IntN(4)}}
		}
		_, err := s.Apply(i, c)
		if err != nil && !errors.Is(err, ErrCommand) {
			t.Fatal(err)
		}
		p := s.Pools[0]
		var all kmutex.TokenSet
		total := 0
		for _, class := range p.Classes {
			twice := all.Clone()
			twice.KeepAll(class.Tokens)
			if len(twice) > 0 || class.Tokens.Len() < class.K {
				t.Fatalf("entry %d: %+v of %+v", i, class, p.Classes)
			}
			all.AddAll(class.Tokens)
			total += class.K
		}
		if total != p.K || p.K < 1 {
			t.Fatalf("entry %d: k %d, classes have %d", i, p.K, total)
		}
		for _, was := range before {
			j := slices.IndexFunc(p.Classes, func(now Class) bool { return now.Upstream == was.Upstream })
			if j < 0 {
				if !whole || was.K > 0 {
					t.Fatalf("entry %d: %s is forgotten", i, was.Upstream)
				}
				continue
			}
			if whole && was.K == 0 {
				continue
			}
			lost := was.Tokens.Clone()
			if lost.RemoveAll(p.Classes[j].Tokens); len(lost) > 0 {
				t.Fatalf("entry %d: %s loses the numbers %v", i, was.Upstream, lost)
			}
		}
	}
}

// TestSetUpstreamK: what is refused, and what says why.
func TestSetUpstreamK(t *testing.T) {
	s := classed(t)
	for _, wrong := range []SetK{
		{Name: "llm", K: 3}, // of which upstream?
		{Name: "llm", Upstream: urlA, K: -1},
		{Name: "llm", Upstream: urlA, K: kmutex.MaxK + 1},
	} {
		if changed, err := s.Apply(2, Command{SetK: &wrong}); changed || !errors.Is(err, ErrCommand) {
			t.Errorf("%+v: %t, %v", wrong, changed, err)
		}
	}
	if changed, err := s.Apply(3, Command{SetK: &SetK{Name: "llm", Upstream: urlA, K: 3, Was: 1}}); changed || !errors.Is(err, ErrConflict) {
		t.Errorf("was is ignored: %t, %v", changed, err)
	}
	if changed, err := s.Apply(4, Command{SetRate: &SetRate{Name: "llm", Rate: Rate{Down: 1 << 20}}}); changed || !errors.Is(err, ErrCommand) {
		t.Errorf("a rate: %t, %v", changed, err)
	}
	if changed, err := s.Apply(5, Command{SetK: &SetK{Name: "llm", Upstream: urlA, K: 0}}); !changed || err != nil || s.Pools[0].K != 4 {
		t.Errorf("k 0: %t, %v, %+v", changed, err, s.Pools[0])
	}
	if changed, err := s.Apply(6, Command{SetK: &SetK{Name: "llm", Upstream: urlB, K: 0}}); changed || !errors.Is(err, ErrCommand) {
		t.Errorf("the last upstream at k 0: %t, %v", changed, err)
	}
}

// TestDefineClasses: a pool begins with classes only if they can be kept to.
func TestDefineClasses(t *testing.T) {
	good := Define{
		Name: "llm", K: 6, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease,
		Classes: []Class{{Upstream: urlA, K: 2}, {Upstream: urlB, K: 4}},
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Define){
		"another sum": func(d *Define) { d.K = 5 },
		"early":       func(d *Define) { d.Binding = admission.BindingEarly },
		"a rate":      func(d *Define) { d.Rate.Down = 1 << 20 },
		"twice":       func(d *Define) { d.Classes[1].Upstream = urlA },
		"k 0":         func(d *Define) { d.Classes[0].K, d.Classes[1].K = 0, 6 },
		"no name":     func(d *Define) { d.Classes[0].Upstream = "" },
		"numbers":     func(d *Define) { d.Classes[0].Tokens = kmutex.NewTokenSet(2) },
	} {
		bad := good
		bad.Classes = slices.Clone(good.Classes)
		spoil(&bad)
		if bad.Check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestSetServers: the servers of a name come with its k and go at k 0, in one epoch; a server that is
// listed itself, or whose k was set, keeps its k; nothing old is applied.
func TestSetServers(t *testing.T) {
	s := classed(t)
	const name = "http://llm.test:8000"
	index := uint64(2)
	set := func(epoch uint64, k int, servers ...string) (bool, error) {
		index++
		return s.Apply(index, Command{SetServers: &SetServers{Pool: "llm", Epoch: epoch, Name: name, Servers: servers, K: k}})
	}
	want := func(what string, ks map[string]int, sum int) {
		t.Helper()
		p := s.Pools[0]
		total := 0
		for _, c := range p.Classes {
			total += c.K
			if k, listed := ks[c.Upstream]; !listed || k != c.K {
				t.Errorf("%s: k of %s is %d", what, c.Upstream, c.K)
			}
		}
		if len(p.Classes) != len(ks) || p.K != sum || total != sum {
			t.Errorf("%s: %d upstreams, k %d, the sum is %d", what, len(p.Classes), p.K, total)
		}
	}
	changed, err := set(1, 3, urlA, "http://c", "http://d")
	if !changed || err != nil || s.Pools[0].Epoch != 2 {
		t.Errorf("%t, %v, epoch %d", changed, err, s.Pools[0].Epoch)
	}
	all := map[string]int{urlA: 2, urlB: 4, "http://c": 3, "http://d": 3}
	want("two are new", all, 12)
	if changed, err = set(2, 5, "http://c", "http://d"); changed || err != nil {
		t.Errorf("the same again: %t, %v", changed, err)
	}
	if changed, err = set(1, 3, "http://e"); changed || err != nil {
		t.Errorf("of an older epoch: %t, %v", changed, err)
	}
	if changed, err = set(2, kmutex.MaxK, "http://c", "http://d", "http://e"); changed || !errors.Is(err, ErrCommand) {
		t.Errorf("too many: %t, %v", changed, err)
	}
	want("refused", all, 12)
	for i, c := range []Command{
		{SetK: &SetK{Name: "llm", Upstream: "http://c", K: 0}}, {SetServers: &SetServers{Pool: "llm", Epoch: 3, Name: name, Servers: []string{"http://c"}, K: 3}},
	} {
		if changed, err := s.Apply(uint64(10+i), c); !changed || err != nil {
			t.Errorf("%v: %t, %v", c, changed, err)
		}
	}
	want("one by command, one has gone", map[string]int{urlA: 2, urlB: 4, "http://c": 0, "http://d": 0}, 6)
	if !s.Pools[0].retiring() {
		t.Error("nobody counts")
	}
	if _, err := s.Apply(12, Command{Recover: &Recover{Pool: "llm", Epoch: 4, Whole: true}}); err != nil {
		t.Error(err)
	}
	want("counted", map[string]int{urlA: 2, urlB: 4, "http://c": 0}, 6)
	if s.Pools[0].retiring() {
		t.Error("it is counted again and again")
	}
	if changed, err := set(5, 3, "http://c"); changed || err != nil {
		t.Errorf("at k 0 by command: %t, %v", changed, err)
	}
	if _, err := set(5, 3, "http://d"); err != nil {
		t.Error(err)
	}
	want("one is back, and the other has gone", map[string]int{urlA: 2, urlB: 4, "http://c": 0, "http://d": 3}, 9)
}
