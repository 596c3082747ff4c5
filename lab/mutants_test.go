package lab_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutants are defects that the fuzz must find: source text and what it is changed
// into. They are compiled by way of an overlay, so the code has no hook for them.
var mutants = []struct {
	name, file, old, new string
	// caught is part of the message of the check that has to find it.
	caught string
}{
	{
		"the baton is passed on and kept", "kmutex/line.go",
		"m.baton = false\n", "",
		"invariant 3",
	},
	{
		"a requester keeps its parent", "kmutex/line.go",
		"m.parent = 0\n\tm.asked", "m.asked",
		"invariant 4|invariant 5|impossible origin",
	},
	{
		"a cancel forgets the token", "kmutex/machine.go",
		"m.recorded = len(m.fx.Grants)\n\t\tm.release(t)", "m.recorded = len(m.fx.Grants)",
		"invariant|which is over",
	},
	{
		"messages of an old epoch are taken in", "kmutex/machine.go",
		"case e.Message.Epoch < m.epoch:", "case e.Message.Epoch+1 < m.epoch:",
		"invariant|protocol violation|more than k",
	},
	{
		"a retired token goes back into use", "kmutex/machine.go",
		"case int(q) >= m.k:", "case int(q) > m.k:",
		"invariant 2|protocol violation|more than k",
	},
	{
		"tokens that lost gateways may use are not withheld", "kmutex/reform.go",
		"p.survey()\n\tif !p.Owed {", "p.survey()\n\tif true {",
		"more than k",
	},
	{
		"free tokens are passed on and kept", "coordinator/late.go",
		"l.coordinator, l.free, l.announced = false, nil, false", "l.coordinator, l.free, l.announced = false, l.free.Clone(), false",
		"invariant 2",
	},
	{
		"the table of tails is stale", "coordinator/early.go",
		"e.tails[e.counter] = s\n", "",
		"invariant 7|a second child|no such seat|panic|more than k",
	},
	{
		"a token is handed over in the critical section", "coordinator/early.go",
		"if s.token != kmutex.NoToken && s.ticket == 0 {\n\t\te.handOver", "if s.token != kmutex.NoToken {\n\t\te.handOver",
		"invariant|more than k|unexpected ticket|panic",
	},
	{
		"a cancelled ticket takes its seat along", "coordinator/early.go",
		"s := e.seats[serial]\n\ts.ticket = 0\n\te.seats[serial] = s\n\treturn true", "delete(e.seats, serial)\n\treturn true",
		"invariant 7|no such seat|panic",
	},
	{
		"home does not wait for the last report", "replication/forming.go",
		"if len(f.awaited) > 0 {\n\t\treturn nil\n\t}\n\treturn f.plan()", "if len(f.awaited) > 1 || f.Planned() {\n\t\treturn nil\n\t}\n\treturn f.plan()",
		"more than k|invariant|not in order|not back|panic",
	},
	{
		"the lease counts from the answer", "membership/lease/holder.go",
		"until := h.sent + h.terms.Lease", "until := now + h.terms.Lease",
		"more than k",
	},
	{
		"a new leader does not wait", "membership/lease/grantor.go",
		"now-max(g.since, g.granted[node])", "now-g.granted[node]",
		"more than k",
	},
	{
		"a leader grants without asking a majority", "membership/lease/round.go",
		"if r.yes <= r.voters/2 ||", "if r.yes < 1 ||",
		"more than k",
	},
	{
		"tokens come back before the lease has run out", "membership/lease/terms.go",
		"return t.Lease + t.Margin() + t.Bound", "return t.Lease / 2",
		"more than k",
	},
	{
		"suspended gateways are granted more", "membership/lease/grantor.go",
		"_, in := g.members[node]\n\treturn in", "return true",
		"still withheld|more than k",
	},
	{
		"the lease is not looked at after a wake-up", "lab/cluster/upstream.go",
		"if !p.entitled() {\n\t\treturn // void comes", "if false {\n\t\treturn // void comes",
		"more than k",
	},
	{
		"requests go on when the lease is over", "lab/cluster/process.go",
		"p.c.endAll(p.gateway, \"isolated\")\n", "",
		"more than k|not served",
	},
	{
		"the margins are ignored", "membership/lease/terms.go",
		"return t.Lease / 10", "return 0",
		"more than k",
	},
	{
		"a message to a member of a newer view is lost", "lab/protocol/fairk/gateway.go",
		"case p.to > kmutex.Node(g.view.Index):\n\t\tg.stash = append(g.stash, p)\n\tdefault:", "default:",
		"invariant|not served",
	},
}

func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the fuzz once per mutant; not with -short")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(root, filepath.FromSlash(m.file))
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("the text to change is %d times in %s", n, m.file)
			}
			out := fuzzMutant(t, path, strings.Replace(string(source), m.old, m.new, 1))
			found := regexp.MustCompile(m.caught).FindString(out)
			if found == "" {
				t.Fatalf("not caught by %q:\n%.3000s", m.caught, out)
			}
			seed := regexp.MustCompile(`kgate lab replay (\d+ --mode \w+)`).FindStringSubmatch(out)
			t.Logf("caught by %q, seed %s", found, seed[1])
		})
	}
}

// fuzzMutant plays seeds with the file at path replaced, and returns what the
// failing run printed.
func fuzzMutant(t *testing.T, path, source string) string {
	t.Helper()
	dir := t.TempDir()
	changed, binary := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "fuzz.test")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(source), filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./fuzz")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile:\n%s", out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-test.run", "TestSeeds", "-fuzz.seeds", "600", "-fuzz.findings", "1").CombinedOutput()
	if err == nil {
		t.Fatalf("not caught:\n%s", out)
	}
	return string(out)
}
