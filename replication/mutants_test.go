package replication

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutants are defects that the random schedules must find: source text and what
// it is changed into. They are compiled by way of an overlay, so the production
// code has no hook for them.
var mutants = []struct {
	name, file, old, new string
	// caught is part of the message of the check that has to find it.
	caught string
}{
	{
		"a copy shows a table of which only a part is there", "copy.go",
		"c.stage = stage\n", "c.stage, c.have = stage, stage\n",
		"is nowhere|has gone back|is unknown",
	},
	{
		"an acknowledgement counts for what came after it", "replicas.go",
		"s.outstanding, s.Progress = 0, a.Progress", "if s.outstanding, s.Progress = 0, a.Progress; s.Staged == 0 && s.Version > 0 {\n\t\ts.Version = r.table.Version()\n\t}",
		"is nowhere|has gone back",
	},
	{
		"an acknowledgement of another push counts", "replicas.go",
		"if s == nil || s.outstanding != a.Seq {", "if s == nil {",
		"seed",
	},
	{
		"a new successor does not count", "replicas.go",
		"for _, s := range r.successors {\n\t\tleast = min(least, s.Version)", "for _, s := range r.successors {\n\t\tif s.Version == 0 {\n\t\t\tcontinue\n\t\t}\n\t\tleast = min(least, s.Version)",
		"is nowhere|has gone back|is unknown",
	},
	{
		"what is synced goes by one successor alone", "replicas.go",
		"least := r.table.Version()\n\tfor _, s := range r.successors {\n\t\tleast = min(least, s.Version)", "least := uint64(0)\n\tfor _, s := range r.successors {\n\t\tleast = max(least, s.Version)",
		"is nowhere|has gone back|is unknown|is synced",
	},
	{
		"former successors drop their copies at once", "replicas.go",
		"if !r.CaughtUp() {\n\t\treturn out\n\t}\n", "",
		"is nowhere|has gone back|is unknown",
	},
	{
		"the heir takes any copy", "estate.go",
		"have == nil || have.To < d.To", "have == nil",
		"is nowhere|has gone back",
	},
	{
		"what was taken over is taken over again", "estate.go",
		"for _, a := range r.Absorbed {\n\t\t\ttaken[a.Node] = true\n\t\t}\n", "",
		"is at nodes|has gone back|is unknown",
	},
	{
		"what a lost gateway had taken over itself is forgotten", "estate.go",
		"for _, a := range d.Absorbed {\n\t\t\t\ttaken[a.Node] = true\n\t\t\t}\n", "",
		"is at nodes|has gone back|is unknown",
	},
	{
		"copies go before their heir is synced", "copies.go",
		"if a.At <= version {", "if true {",
		"is nowhere|is unknown|has gone back",
	},
	{
		"a slot that was given back is handed on", "estate.go",
		"(running.Has(r.Token) || r.Fence.Less(last[r.Token]))", "false",
		"two holders",
	},
	{
		"deletions are forgotten and nobody knows", "store.go",
		"s.forgotten = c.At\n", "",
		"has gone back|is at nodes|two holders|still",
	},
	{
		"an old push is taken in after a retirement", "copies.go",
		"if p.Seq <= mine.seq {", "if false {",
		"still has a copy",
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

// runMutant runs the schedules with the file at path replaced, and returns what
// the failing run printed.
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
		"-run", "TestRandomSchedules", ".")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("not caught: every schedule is in order")
	}
	if strings.Contains(string(out), "[build failed]") {
		t.Fatalf("the mutant does not compile:\n%s", out)
	}
	return string(out)
}
