package kmutex_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// smallWorlds is the search of explore_test.go, as far as the mutants need it.
const smallWorlds = "TestExplore/.*/(n=2|n=3,k=1,requests=1|n=4,k=1)"

// mutants are defects that the tests must find: source text and what it is
// changed into. They are compiled by way of an overlay, so the production code
// has no hook for them.
var mutants = []struct {
	name, file, old, new string
	// caught is part of the message of the check that has to find it.
	caught string
	// by is the test that has to; empty: the small worlds.
	by string
}{
	{
		"a requester keeps its parent", "line.go",
		"m.parent = 0\n\tm.asked", "m.asked",
		"invariant 4|invariant 5|impossible origin", "",
	},
	{
		"the baton is passed on and kept", "line.go",
		"m.baton = false\n", "",
		"invariant 3", "",
	},
	{
		"a turn that is over does not pass the baton on", "line.go",
		"if next.IsZero() {\n\t\t\treturn // nobody behind: idle coordinator", "{\n\t\t\treturn",
		"invariant 5|nothing can happen|invariant 8", "",
	},
	{
		"free tokens are passed on and kept", "../coordinator/late.go",
		"l.coordinator, l.free, l.announced = false, nil, false", "l.coordinator, l.free, l.announced = false, l.free.Clone(), false",
		"invariant 2", "",
	},
	{
		"the baton forgets parked tokens", "../coordinator/late.go",
		"l.free.Add(p.Token)\n\t\t}\n\t\treturn arrived", "}\n\t\treturn arrived",
		"invariant 2", "",
	},
	{
		"a released token stays where nobody looks for it", "../coordinator/late.go",
		"case l.coordinator:\n\t\tl.free.Add(q)\n\tcase l.self != l.home:", "case l.coordinator || l.self == l.home:\n\t\tl.free.Add(q)\n\tcase l.self != l.home:",
		"invariant 8|nothing can happen|invariant 2", "",
	},
	{
		"the table of tails is stale", "../coordinator/early.go",
		"e.tails[e.counter] = s\n", "",
		"invariant 7|a second child|no such seat", "",
	},
	{
		"a token is handed over in the critical section", "../coordinator/early.go",
		"if s.token != kmutex.NoToken && s.ticket == 0 {\n\t\te.handOver", "if s.token != kmutex.NoToken {\n\t\te.handOver",
		"invariant 1|invariant 2|invariant 6", "",
	},
	{
		"a cancelled ticket takes its seat along", "../coordinator/early.go",
		"s := e.seats[serial]\n\ts.ticket = 0\n\te.seats[serial] = s\n\treturn true", "delete(e.seats, serial)\n\treturn true",
		"invariant 7|no such seat|panic", "",
	},
	{
		"an idle tail keeps its token from its child (misprint E1 of the paper)", "../coordinator/early.go",
		"if s.child.IsZero() {\n\t\t\te.put(serial, s)\n\t\t\treturn", "if !s.child.IsZero() {\n\t\t\te.put(serial, s)\n\t\t\treturn",
		"invariant|nothing can happen|panic", "",
	},
	{
		"withheld tokens are given out", "reform.go",
		"if !p.Owed {\n\t\treturn\n\t}\n\tif p.withheld", "return\n\tif p.withheld",
		"safety", "TestRandomSchedules",
	},
	{
		"a free token is believed although an epoch may have begun since", "reform.go",
		"if current {\n\t\t\tp.idle", "if true {\n\t\t\tp.idle",
		"safety", "TestRandomSchedules",
	},
	{
		"the k of an epoch that nobody alive has entered is forgotten", "reform.go",
		"if !current {\n\t\t\tp.tokens", "if false {\n\t\t\tp.tokens",
		"safety", "TestRandomSchedules",
	},
	{
		"tokens are minted when nobody knows how many there were", "reform.go",
		"p.withheld, p.idle = NewTokenSet(p.K), nil", "p.idle = nil",
		"safety", "TestRandomSchedules",
	},
	{
		"a newcomer claims to know all tokens", "epoch.go",
		"if epoch == 1 || self == home", "if self != 0",
		"tokens", "TestNewcomersDoNotKnowTheTokens",
	},
	{
		"a running token is renumbered to a withheld one", "reform.go",
		"case p.withheld.Has(q):\n\t\tcase p.running", "case p.running",
		"invariant 2|invariant 6|safety", "TestRandomSchedules",
	},
	{
		"the number that renumbering leaves is no token any more", "reform.go",
		"[]TokenSet{p.reported, p.running", "[]TokenSet{p.running",
		"invariant 2|safety", "TestRandomSchedules",
	},
	{
		"a retired token is used again", "machine.go",
		"case int(q) >= m.k:", "case false:",
		"invariant 2|panic|safety", "TestRandomSchedules",
	},
	{
		"two adopted slots get one token", "reform.go",
		"source := p.withheld.Clone()", "source := p.withheld",
		"which is impossible|runs elsewhere too", "TestRandomSchedules",
	},
	{
		"an adopted slot's token is used again while its lost node may use it", "reform.go",
		"if p.Owed && g.Ticket >= FirstAdopted {", "if false {",
		"in the epochs after", "TestReformTokens",
	},
	{
		"a ticket is adopted twice", "epoch.go",
		"m.adopted = max(m.adopted, t)", "_ = t",
		"taken over again", "TestAdoptedOnce",
	},
	{
		"the install of an old epoch is accepted", "epoch.go",
		"in.Epoch == 0 || m.epoch != 0 && in.Epoch != m.epoch:", "in.Epoch == 0:",
		"takes the install", "TestRandomSchedules",
	},
	{
		"the baton leaves the serial behind", "../coordinator/late.go",
		"l.got, l.serial = baton.Number, baton.Serial", "l.got = baton.Number",
		"serial", "TestRandomSchedules",
	},
	{
		"a token leaves its serial behind", "../coordinator/early.go",
		"s.token, s.last = q, last", "s.token = q",
		"serial", "TestRandomSchedules",
	},
}

func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package once per mutant; not with -short")
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("the text to change is %d times in %s", n, m.file)
			}
			out := runMutant(t, cmp.Or(m.by, smallWorlds), path, strings.Replace(string(source), m.old, m.new, 1))
			found := regexp.MustCompile(m.caught).FindString(out)
			if found == "" {
				t.Fatalf("not caught by %q:\n%s", m.caught, out)
			}
			t.Logf("caught by %q", found)
		})
	}
}

// runMutant runs tests with the file at path replaced, and returns what the
// failing run printed.
func runMutant(t *testing.T, tests, path, source string) string {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, "mutant.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(source), filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-count=1",
		"-run", tests, ".")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("not caught")
	}
	if strings.Contains(string(out), "[build failed]") {
		t.Fatalf("the mutant does not compile:\n%s", out)
	}
	return string(out)
}
