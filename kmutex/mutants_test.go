package kmutex_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutants are defects that the search must find: source text and what it is
// changed into. They are compiled by way of an overlay, so the production code
// has no hook for them.
var mutants = []struct {
	name, file, old, new string
	// caught is part of the message of the check that has to find it.
	caught string
}{
	{
		"a requester keeps its parent", "line.go",
		"m.parent = 0\n\tm.asked", "m.asked",
		"invariant 4|invariant 5|impossible origin",
	},
	{
		"the baton is passed on and kept", "line.go",
		"m.baton = false\n", "",
		"invariant 3",
	},
	{
		"a turn that is over does not pass the baton on", "line.go",
		"if next.IsZero() {\n\t\t\treturn // nobody behind: idle coordinator", "{\n\t\t\treturn",
		"invariant 5|nothing can happen|invariant 8",
	},
	{
		"free tokens are passed on and kept", "../coordinator/late.go",
		"l.coordinator, l.free, l.announced = false, nil, false", "l.coordinator, l.free, l.announced = false, l.free.Clone(), false",
		"invariant 2",
	},
	{
		"the baton forgets parked tokens", "../coordinator/late.go",
		"l.free.Add(p.Token)\n\t\t}\n\t\treturn arrived", "}\n\t\treturn arrived",
		"invariant 2",
	},
	{
		"a released token stays where nobody looks for it", "../coordinator/late.go",
		"case l.coordinator:\n\t\tl.free.Add(q)\n\tcase l.self != l.home:", "case l.coordinator || l.self == l.home:\n\t\tl.free.Add(q)\n\tcase l.self != l.home:",
		"invariant 8|nothing can happen|invariant 2",
	},
	{
		"the table of tails is stale", "../coordinator/early.go",
		"e.tails[e.counter] = s\n", "",
		"invariant 7|a second child|no such seat",
	},
	{
		"a token is handed over in the critical section", "../coordinator/early.go",
		"if s.token != kmutex.NoToken && s.ticket == 0 {\n\t\te.handOver", "if s.token != kmutex.NoToken {\n\t\te.handOver",
		"invariant 1|invariant 2|invariant 6",
	},
	{
		"a cancelled ticket takes its seat along", "../coordinator/early.go",
		"s := e.seats[serial]\n\ts.ticket = 0\n\te.seats[serial] = s\n\treturn true", "delete(e.seats, serial)\n\treturn true",
		"invariant 7|no such seat|panic",
	},
	{
		"an idle tail keeps its token from its child (misprint E1 of the paper)", "../coordinator/early.go",
		"if s.child.IsZero() {\n\t\t\te.put(serial, s)\n\t\t\treturn", "if !s.child.IsZero() {\n\t\t\te.put(serial, s)\n\t\t\treturn",
		"invariant|nothing can happen|panic",
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
			out := runMutant(t, path, strings.Replace(string(source), m.old, m.new, 1))
			found := regexp.MustCompile(m.caught).FindString(out)
			if found == "" {
				t.Fatalf("not caught by %q:\n%s", m.caught, out)
			}
			t.Logf("caught by %q", found)
		})
	}
}

// runMutant runs the small worlds with the file at path replaced, and returns
// what the failing run printed.
func runMutant(t *testing.T, path, source string) string {
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
		"-run", "TestExplore/.*/(n=2|n=3,k=1,requests=1|n=4,k=1)", ".")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("not caught: every small world is in order")
	}
	if strings.Contains(string(out), "[build failed]") {
		t.Fatalf("the mutant does not compile:\n%s", out)
	}
	return string(out)
}
