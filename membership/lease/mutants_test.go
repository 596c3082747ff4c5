package lease

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutants are defects that the worlds must find, or where it says so a table,
// compiled by way of an overlay.
var mutants = []struct {
	name, file, old, new string
	// caught is part of what the check says that has to find it.
	caught string
}{
	{
		"the lease is counted from the reply", "holder.go",
		"until := h.sent +", "until := now +",
		"calls it expired",
	},
	{
		"the margin is ignored", "holder.go",
		"h.sent + h.terms.Lease - h.terms.Margin()", "h.sent + h.terms.Lease",
		"calls it expired",
	},
	{
		"an answer revives a lease that has lapsed", "holder.go",
		"r.Tag != h.tag || h.Over(now)", "r.Tag != h.tag",
		"has a lease again",
	},
	{
		"the grantor counts from receiving without the tenth", "terms.go",
		"return t.Lease + t.Margin() + t.Bound", "return t.Lease + t.Bound",
		"calls it expired",
	},
	{
		"a new leader does not wait", "grantor.go",
		"now-max(g.since, g.granted[node])", "now-g.granted[node]",
		"calls it expired",
	},
	{
		"a leader grants without asking the voters", "round.go",
		"r.yes <= r.voters/2 || r.renewals == nil", "r.renewals == nil",
		"calls it expired",
	},
	{
		"voters in a later term count", "round.go",
		"g.deposed = true", "term = g.term",
		"calls it expired",
	},
	{
		"a round answers what came after it began", "round.go",
		"granted = g.grant(r.renewals)", "maps.Copy(r.renewals, g.pending)\n\tgranted = g.grant(r.renewals)",
		`granted \[\{`,
	},
	{
		"what was granted does not count", "round.go",
		"g.granted[r.renewal.Node] = r.at\n", "",
		"calls it expired",
	},
	{
		"a member that is not lost may be called expired, and is granted on", "grantor.go",
		"if g.member(node) || !g.lost[node] {", "if !g.lost[node] && !g.member(node) {",
		"node 2 at 1h0m0s: expired true",
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

// runMutant runs the worlds and two tables with the file at path
// replaced, and returns what the failing run printed.
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
		"-run", "TestWorlds|TestExpired|TestGrantedByAMajority", ".", "-lease.seeds=300")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("not caught: every world is in order")
	}
	if strings.Contains(string(out), "[build failed]") {
		t.Fatalf("the mutant does not compile:\n%s", out)
	}
	return string(out)
}
