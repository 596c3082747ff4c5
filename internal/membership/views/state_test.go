package views

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
)

func join(name, boot string) Command {
	return Command{Join: &Join{Name: name, Boot: boot, PeerAddr: name + ":7080", Server: name + "/" + boot}}
}

func drop1(node kmutex.Node) Command { return Command{Remove: &Remove{Node: node}} }

func poolOf(name string, k int) Command {
	return Command{Define: &Define{Name: name, K: k, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease}}
}

func setK(name string, k int) Command { return Command{SetK: &SetK{Name: name, K: k}} }

// describe writes a state short: view number, members as name:node, pools as
// name:k@epoch/home.
func describe(s *state) string {
	v := s.view()
	var b strings.Builder
	fmt.Fprintf(&b, "%d", v.Number)
	for _, m := range v.Members {
		fmt.Fprintf(&b, " %s:%d", m.Name, m.Node)
	}
	for _, p := range v.Pools {
		fmt.Fprintf(&b, " %s:%d@%d/%d", p.Name, p.K, p.Epoch, p.Home)
	}
	return b.String()
}

// The owner of "p" is "b" as long as b is there, then "a", then "c".
func TestCommands(t *testing.T) {
	ring := ringOf([]Member{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	first, second := ring.Owner("p"), ring.Successors(ring.Owner("p"), 1)[0]
	third := ring.Successors(first, 2)[1]
	for _, tt := range []struct {
		name     string
		commands []Command // the index of each is its place, from 1
		want     string
	}{
		{"first pool", []Command{join(first, "x"), poolOf("p", 3)}, fmt.Sprintf("2 %s:1 p:3@1/1", first)},
		{"the first definition wins", []Command{join(first, "x"), poolOf("p", 3), poolOf("p", 9)}, fmt.Sprintf("2 %s:1 p:3@1/1", first)},
		{"a join moves neither epoch nor home", []Command{join(second, "x"), poolOf("p", 3), join(first, "x")}, fmt.Sprintf("3 %s:1 %s:3 p:3@1/1", second, first)},
		{"the same join twice is one", []Command{join(first, "x"), join(first, "x")}, fmt.Sprintf("1 %s:1", first)},
		{"a new boot is a new node", []Command{join(first, "x"), join(second, "x"), poolOf("p", 3), join(first, "y")}, fmt.Sprintf("4 %s:2 %s:4 p:3@2/4", second, first)},
		{"the home leaves", []Command{join(first, "x"), join(second, "x"), join(third, "x"), poolOf("p", 3), drop1(1)}, fmt.Sprintf("5 %s:2 %s:3 p:3@2/2", second, third)},
		{"another leaves", []Command{join(first, "x"), join(second, "x"), poolOf("p", 3), drop1(2)}, fmt.Sprintf("4 %s:1 p:3@2/1", first)},
		{"the home of a later epoch is its owner then", []Command{join(second, "x"), poolOf("p", 3), join(first, "x"), join(third, "x"), drop1(4)}, fmt.Sprintf("5 %s:1 %s:3 p:3@2/3", second, first)},
		{"an old incarnation cannot be removed again", []Command{join(first, "x"), join(first, "y"), drop1(1)}, fmt.Sprintf("2 %s:2", first)},
		{"k changes in a new epoch", []Command{join(first, "x"), poolOf("p", 3), poolOf("q", 1), setK("p", 5)}, fmt.Sprintf("4 %s:1 p:5@2/1 q:1@1/1", first)},
		{"the same k changes nothing", []Command{join(first, "x"), poolOf("p", 3), setK("p", 3)}, fmt.Sprintf("2 %s:1 p:3@1/1", first)},
		{"the last one leaves, the next one is home", []Command{join(first, "x"), poolOf("p", 3), drop1(1), join(second, "x")}, fmt.Sprintf("4 %s:4 p:3@3/4", second)},
		{"a new address is the same node", []Command{join(first, "x"), {Join: &Join{Name: first, Boot: "x", PeerAddr: "elsewhere:1", Server: first + "/x"}}}, fmt.Sprintf("2 %s:1", first)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s state
			for i, c := range tt.commands {
				if _, err := s.Apply(uint64(i+1), c); err != nil {
					t.Fatalf("command %d: %v", i+1, err)
				}
			}
			if got := describe(&s); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestRefusedCommandsChangeNothing(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	for name, c := range map[string]Command{
		"no name":        join("", "x"),
		"no boot":        {Join: &Join{Name: "a", PeerAddr: "a:1", Server: "a/x"}},
		"long name":      join(long, "x"),
		"no k":           poolOf("p", 0),
		"negative k":     poolOf("p", -1),
		"huge k":         poolOf("p", kmutex.MaxK+1),
		"no pool name":   poolOf("", 1),
		"bad binding":    {Define: &Define{Name: "p", K: 1, Binding: "sometimes", Reclaim: admission.ReclaimLease}},
		"unknown pool":   setK("nobody", 1),
		"k of zero":      setK("known", 0),
		"empty cluster":  {Found: &Found{Lease: time.Second}},
		"no lease":       {Found: &Found{Cluster: "c"}},
		"endless lease":  {Found: &Found{Cluster: "c", Lease: 2 * maxLease}},
		"negative k set": setK("known", -1),
		"huge k set":     setK("known", kmutex.MaxK+1),
		"hold no limit":  {Define: &Define{Name: "p", K: 1, Binding: admission.BindingLate, Reclaim: admission.ReclaimHold}},
		"lease, limit":   {Define: &Define{Name: "p", K: 1, Binding: admission.BindingLate, Reclaim: admission.ReclaimLease, HoldMax: 1}},
		"bad reclaim":    {Define: &Define{Name: "p", K: 1, Binding: admission.BindingLate, Reclaim: "never"}},
		"recover what":   {Recover: &Recover{Pool: "nobody", Epoch: 1}},
		"return what":    {Return: &Return{Pool: "nobody", Nodes: []kmutex.Node{1}}},
		"tickets where":  {UseTickets: &UseTickets{Pool: "nobody"}},
		"empty command":  {},
	} {
		s := state{}
		if _, err := s.Apply(1, poolOf("known", 1)); err != nil {
			t.Fatal(err)
		}
		before := describe(&s)
		changed, err := s.Apply(2, c)
		if !errors.Is(err, ErrCommand) || changed || describe(&s) != before {
			t.Errorf("%s: changed %v, error %v, state %s", name, changed, err, describe(&s))
		}
	}
}

func TestDecodeCommand(t *testing.T) {
	good, err := Encode(join("a", "x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{good, bytes.Replace(good, []byte(`"v":3`), []byte(`"v":2`), 1)} {
		if c, err := DecodeCommand(data); err != nil || c.Join == nil || c.Join.Name != "a" {
			t.Fatalf("%s: %+v, %v", data, c, err)
		}
	}
	for text, want := range map[string]error{
		``:                                       ErrCommand,
		`null`:                                   ErrCommand,
		`7`:                                      ErrCommand,
		`{}`:                                     ErrCommand,
		`{"v":3}`:                                ErrCommand,
		`{"v":1,"remove":{"node":1}}`:            errOlder,
		`{"v":0,"remove":{"node":1}}`:            ErrCommand,
		`{"v":7,"lease":{"node":1}}`:             ErrNewer,
		`{"v":3,"lease":{"node":1}}`:             ErrCommand,
		`{"v":3,"remove":{"node":1}} more`:       ErrCommand,
		`{"v":3,"remove":{"node":1,"why":"so"}}`: ErrCommand,
		`{"v":3,"remove":{"node":-1}}`:           ErrCommand,
		`{"v":3,"remove":{"node":1},"set_k":{"k":1}}`:  ErrCommand,
		`{"v":3,"pad":"` + strings.Repeat("x", 20_000): ErrCommand,
		`{"v":3,"found":{"cluster":"` + "\x00" + `"}}`: ErrCommand,
	} {
		if _, err := DecodeCommand([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", text, err, want)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range []Command{join("a", "x"), drop1(3), poolOf("p", 3), setK("p", 2), {Found: &Found{"c", time.Second, 7}}} {
		data, err := Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeCommand(data)
		if err != nil {
			return
		}
		var s state
		_, _ = s.Apply(1, c) // must not panic
		if _, err := Encode(c); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzDecodeState: a snapshot that is no good is refused, and one that is taken
// in can be written again, and commands applied to it.
func FuzzDecodeState(f *testing.F) {
	var s state
	for i, c := range []Command{join("a", "x"), join("b", "y"), poolOf("p", 3), setK("p", 2)} {
		_, _ = s.Apply(uint64(i+1), c)
		data, err := s.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"format":99}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			return
		}
		_, _ = s.Apply(1<<40, join("z", "z")) // must not panic
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeState(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}

// logs draws a log of commands, some of them senseless.
func drawLog(t *rapid.T) []Command {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", ""})
	some := rapid.Custom(func(t *rapid.T) Command {
		node := rapid.Custom(func(t *rapid.T) kmutex.Node { return kmutex.Node(rapid.IntRange(0, 60).Draw(t, "node")) })
		nodes := rapid.SliceOfN(node, 0, 3)
		named := rapid.SampledFrom([]string{"p", "q", "r"})
		switch rapid.IntRange(0, 16).Draw(t, "kind") {
		case 0:
			return Command{Found: &Found{Lease: time.Second, Cluster: rapid.SampledFrom([]string{"c1", "c2", ""}).Draw(t, "cluster")}}
		case 1, 2, 3, 4:
			c := join(name.Draw(t, "name"), rapid.SampledFrom([]string{"x", "y", "z", "u", "v"}).Draw(t, "boot"))
			c.Join.Voided = node.Draw(t, "voided")
			return c
		case 5, 6:
			return drop1(node.Draw(t, "node"))
		case 7, 8:
			c := poolOf(named.Draw(t, "pool"), rapid.IntRange(0, 4).Draw(t, "k"))
			if rapid.Bool().Draw(t, "hold") {
				c.Define.Reclaim, c.Define.HoldMax = admission.ReclaimHold, time.Minute
			}
			return c
		case 9:
			return setK(named.Draw(t, "pool"), rapid.IntRange(0, 4).Draw(t, "k"))
		case 10, 11, 12:
			return Command{Suspend: &Suspend{Nodes: nodes.Draw(t, "nodes"), Reasons: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "reasons")}}
		case 13, 14:
			return Command{Expire: &Expire{Nodes: nodes.Draw(t, "nodes")}}
		case 15:
			return Command{Return: &Return{Pool: named.Draw(t, "pool"), Nodes: nodes.Draw(t, "nodes")}}
		default:
			return Command{Recover: &Recover{Pool: named.Draw(t, "pool"), Epoch: rapid.Uint64Range(1, 5).Draw(t, "epoch")}}
		}
	})
	return rapid.SliceOfN(some, 0, 60).Draw(t, "log")
}

// The same log yields the same view, whether it was read in one go, or up to a
// snapshot which another gateway went on from. Every view keeps its promises.
func TestSameLogSameView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t)
		cut := rapid.IntRange(0, len(log)).Draw(t, "snapshot at")
		whole, parts := new(Machine), new(Machine)
		var views []*View
		var texts []string
		for i, c := range log {
			views, texts = append(views, whole.View()), append(texts, losses(whole.View()))
			if i == cut {
				parts = restored(t, parts)
			}
			data, err := Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			before := whole.View()
			_, a := whole.Apply(uint64(i+1), data)
			_, b := parts.Apply(uint64(i+1), data)
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("entry %d: %v and %v", i+1, a, b)
			}
			checkSuccession(t, before, whole.View(), uint64(i+1))
		}
		for i, v := range views {
			if now := losses(v); now != texts[i] {
				t.Fatalf("a view changed after it was published:\n%s\n%s", texts[i], now)
			}
		}
		if a, b := describe(&whole.state), describe(&parts.state); a != b {
			t.Fatalf("views differ:\n%s\n%s", a, b)
		}
		if a, b := whole.View(), parts.View(); a.Cluster != b.Cluster || fmt.Sprint(a.Pools) != fmt.Sprint(b.Pools) || !slices.Equal(a.Members, b.Members) {
			t.Fatalf("views differ:\n%+v\n%+v", a, b)
		}
	})
}

// checkSuccession holds two views in succession against what doc.go promises.
func checkSuccession(t *rapid.T, old, now *View, index uint64) {
	if now == old {
		return
	}
	if now.Number != old.Number+1 {
		t.Fatalf("view %d after view %d", now.Number, old.Number)
	}
	checkLosses(t, old, now)
	lost := len(now.Lost) > len(old.Lost)
	names := map[string]bool{}
	for i, m := range now.Members {
		_, known := old.Member(m.Node)
		if names[m.Name] || !known && m.Node != kmutex.Node(index) || i > 0 && now.Members[i-1].Node >= m.Node {
			t.Fatalf("members %+v after %+v", now.Members, old.Members)
		}
		names[m.Name] = true
	}
	for _, p := range now.Pools {
		before, known := old.Pool(p.Name)
		owesLess := len(p.Owed) < len(before.Owed)
		must := lost || owesLess || known && (before.K != p.K || before.Home == 0 && len(now.Members) > 0)
		moved := p.Epoch != before.Epoch
		switch owner, ok := now.Named(now.Ring().Owner(p.Name)); {
		case !known && p.Epoch != 1:
			t.Fatalf("new pool %+v", p)
		case known && !moved && (must || !reflect.DeepEqual(p, before)):
			t.Fatalf("pool %+v became %+v without a new epoch", before, p)
		case known && moved && p.Epoch != before.Epoch+1:
			t.Fatalf("pool %+v became %+v, want the next epoch", before, p)
		case (!known || moved) && (p.Home != owner.Node || ok != (p.Home != 0) || p.Began != index):
			t.Fatalf("pool %+v, owner %+v, index %d", p, owner, index)
		}
		if _, ok := now.Member(p.Home); !ok && len(now.Members) > 0 {
			t.Fatalf("the home of %+v is no member", p)
		}
	}
}

// checkLosses holds what two views in succession say of lost members against
// what doc.go promises.
func checkLosses(t *rapid.T, old, now *View) {
	for _, m := range old.Members {
		_, in := now.Member(m.Node)
		l, gone := now.LostMember(m.Node)
		if in == gone || gone && (l.Name != m.Name || l.Boot != m.Boot) {
			t.Fatalf("member %+v became %+v, in %v", m, l, in)
		}
	}
	for _, l := range now.Lost {
		before, known := old.LostMember(l.Node)
		successor, in := now.Member(l.Successor)
		switch {
		case in != (len(now.Members) > 0), (l.Successor != 0) != in:
			t.Fatalf("successor of %+v among %+v", l, now.Members)
		case known && l.Leased && !before.Leased:
			t.Fatalf("%+v has a lease again", l)
		case known && before.Successor != 0 && before.Successor != l.Successor:
			// It moved on because the successor was lost, to where that one's copies are.
			if next, _ := now.LostMember(before.Successor); next.Successor != l.Successor {
				t.Fatalf("%+v became %+v, its successor left all to %+v", before, l, next)
			}
		case !known && successor.Name == l.Name && len(now.Members) > 1:
			t.Fatalf("%+v inherits what it left itself", l)
		}
		for _, p := range now.Pools {
			was, _ := old.Pool(p.Name)
			owes := slices.Contains(p.Owed, l.Node)
			switch {
			case l.Leased && !owes && slices.Contains(was.Owed, l.Node):
				t.Fatalf("%+v is leased, and pool %+v has its tokens back", l, p)
			case owes && !l.Leased && p.Reclaim == admission.ReclaimLease:
				t.Fatalf("%+v is expired, and pool %+v has not its tokens back", l, p)
			case owes && known && !slices.Contains(was.Owed, l.Node):
				t.Fatalf("%+v owes pool %+v later than its loss", l, p)
			}
		}
	}
}

func restored(t *rapid.T, m *Machine) *Machine {
	data, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	other := new(Machine)
	if err := other.Restore(data); err != nil {
		t.Fatal(err)
	}
	return other
}

func TestRestoreRefusesGarbage(t *testing.T) {
	for text, want := range map[string]string{
		``: "snapshot", `{}`: "format 0", `{"format":8}`: "newer version", `{"format":4,"leases":[]}`: "unknown field",
		`{"format":4,"members":[{"node":2,"name":"a"},{"node":1,"name":"b"}]}`: "in order: false",
		`{"format":4} trailing`: "snapshot",
	} {
		m := new(Machine)
		err := m.Restore([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want something about %q", text, err, want)
		}
	}
}

// A command that only a newer version understands stops this one for good:
// going on would make another view out of the same log.
func TestNewerCommandStops(t *testing.T) {
	m := new(Machine)
	if _, err := m.Apply(1, []byte(`{"v":7,"lease":{}}`)); !errors.Is(err, ErrNewer) {
		t.Fatalf("%v", err)
	}
	data, err := Encode(join("a", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(2, data); err == nil || len(m.View().Members) != 0 {
		t.Error("it goes on after a command that it did not understand")
	}
	if !errors.Is(m.Broken(), ErrNewer) {
		t.Errorf("problem %v", m.Broken())
	}
	if _, err := m.Snapshot(); err == nil {
		t.Error("it writes a snapshot of a state that is not the log's")
	}
}
