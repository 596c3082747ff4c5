// Package imports tests the architecture: which package may import which.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "github.com/kgate/kgate"
	module = root + "/"
)

// nameOf returns the name in the table of a package of the module: its path below the
// module's, and "kgate" for the package at the top.
func nameOf(path string) (name string, ours bool) {
	if path == root {
		return "kgate", true
	}
	return strings.CutPrefix(path, module)
}

// allowed lists, for each package of the module, the others that it may import.
var allowed = map[string][]string{
	"kmutex":                       {},
	"kmutex/invariants":            {"kmutex"},
	"internal/admission":           {},
	"internal/peercall":            {"internal/peercert"},
	"coordinator":                  {"kmutex"},
	"chordring":                    {},
	"chordring/serfring":           {"internal/oncelog", "internal/transport", "internal/transport/wire"},
	"internal/oncelog":             {},
	"internal/clusterkey":          {},
	"internal/peercert":            {},
	"internal/inbound":             {},
	"internal/transport":           {"internal/peercert", "internal/inbound", "internal/transport/wire", "kmutex", "internal/oncelog"},
	"internal/transport/wire":      {},
	"internal/membership":          {"internal/admission", "chordring/serfring", "kmutex", "internal/membership/core", "internal/membership/leader", "internal/membership/views", "internal/journal", "internal/oncelog", "internal/transport", "internal/transport/wire"},
	"internal/membership/core":     {"kmutex", "internal/membership/leader", "internal/membership/lease", "internal/membership/views"},
	"internal/journal":             {},
	"internal/journal/journaltest": {"internal/journal"},
	"internal/membership/views":    {"internal/admission", "chordring", "kmutex", "internal/membership/lease", "internal/pool", "replication"},
	"telemetry":                    {"internal/admission", "kmutex"},
	"telemetry/otlp":               {"internal/oncelog", "telemetry"},
	"telemetry/prom":               {"telemetry"},
	"internal/deadline":            {},
	"internal/pace":                {},
	"internal/drift":               {},
	"internal/headeredit":          {},
	"internal/hostaddr":            {},
	"internal/httplist":            {},
	"internal/socket":              {},
	"internal/problems":            {"internal/httplist"},
	"proxy":                        {"internal/admission", "internal/deadline", "internal/headeredit", "internal/httplist", "internal/pace", "internal/problems", "internal/oncelog", "proxy/downstream", "proxy/http1", "proxy/http1/adapt", "proxy/relay", "proxy/tcpstate", "proxy/upstream"},
	"proxy/downstream":             {"internal/deadline", "internal/oncelog", "proxy/http1", "proxy/http1/adapt", "proxy/tcpstate"},
	"proxy/http1":                  {},
	"proxy/http1/adapt":            {"proxy/http1"},
	"proxy/relay":                  {},
	"proxy/tcpstate":               {},
	"proxy/upstream":               {"internal/deadline", "proxy/http1", "proxy/http1/adapt", "proxy/relay", "proxy/tcpstate"},
	"internal/config":              {"internal/admission", "internal/headeredit", "internal/hostaddr", "internal/socket", "kmutex"},
	"configs":                      {},
	"configs/grafana":              {},
	"internal/admin":               {"internal/peercall", "internal/admission", "internal/problems"},
	"internal/admin/admintest":     {"internal/admission", "internal/admin"},
	"internal/mutant":              {},
	"internal/timing":              {},
	"internal/memnet":              {},
	"internal/nametest":            {},
	"internal/inside/fields":       {},
	"client":                       {"internal/admission", "internal/drift", "internal/problems", "internal/socket"},
	"internal/demo":                {},
	"replication":                  {"chordring", "internal/admission", "kmutex"},
	"replication/disk":             {"internal/journal", "kmutex", "replication"},
	"internal/gateway":             {"internal/peercall", "internal/admission", "coordinator", "internal/drift", "internal/pace", "internal/pool", "kmutex", "internal/membership", "internal/oncelog", "replication", "replication/disk", "internal/transport", "internal/transport/wire"},
	"internal/pool":                {"internal/admission", "internal/drift", "kmutex", "replication"},
	"lab/sim":                      {},
	"lab/network":                  {"lab/sim"},
	"lab/workload":                 {},
	"lab/meter":                    {},
	"lab/ring":                     {},
	"lab/heirs":                    {"chordring", "internal/admission", "kmutex", "replication"},
	"lab/protocol":                 {"lab/sim"},
	"lab/protocol/bv95":            {"lab/protocol", "lab/protocol/naimi"},
	"lab/protocol/central":         {"lab/protocol", "lab/sim"},
	"lab/protocol/fairk":           {"chordring", "coordinator", "internal/pool", "kmutex", "replication", "lab/protocol", "lab/sim"},
	"lab/protocol/ideal":           {"lab/protocol", "lab/sim"},
	"lab/protocol/quorum":          {"chordring", "lab/protocol", "lab/sim"},
	"lab/protocol/static":          {"lab/protocol", "lab/sim"},
	"lab/rounds":                   {"lab/meter", "lab/network", "lab/protocol", "lab/protocol/quorum", "lab/sim"},
	"lab/hosts":                    {"internal/membership/core", "internal/membership/views", "kmutex", "lab/sim"},
	"lab/cluster":                  {"internal/admission", "internal/drift", "internal/pool", "kmutex", "kmutex/invariants", "replication", "lab/hosts", "lab/protocol", "lab/protocol/fairk", "lab/sim", "internal/membership/core", "internal/membership/views"},
	"lab/fuzz":                     {"lab/cluster", "lab/hosts", "lab/network"},
	"lab":                          {"lab/meter", "lab/network", "lab/protocol", "lab/sim", "lab/workload"},
	"lab/check":                    {"lab", "lab/protocol", "lab/sim", "lab/workload"},

	// The protocols of the other papers, and what judges them.
	"lab/handover":              {"lab/network", "lab/protocol", "lab/sim"},
	"lab/protocol/elmp":         {"lab/protocol", "lab/sim"},
	"lab/protocol/naimi":        {"lab/protocol", "lab/sim"},
	"lab/protocol/paper":        {"lab/protocol", "lab/sim"},
	"lab/protocol/suzukikasami": {"lab/protocol", "lab/sim"},
	"lab/protocol/token":        {"lab/protocol", "lab/sim"},

	"lab/experiment": {
		"lab/cluster", "lab/handover", "lab/protocol/elmp", "lab/protocol/naimi", "lab/protocol/quorum", "lab/protocol/suzukikasami",
		"lab/protocol/token",
		"lab", "lab/heirs", "lab/meter", "lab/network", "lab/protocol", "lab/protocol/bv95", "lab/protocol/central", "lab/protocol/fairk", "lab/check", "lab/protocol/paper",
		"lab/protocol/ideal", "lab/protocol/static", "lab/ring", "lab/rounds", "lab/workload",
	},
	"lab/bar":                    {},
	"lab/report":                 {"lab/experiment", "lab/meter"},
	"lab/plan":                   {"lab", "lab/meter", "lab/network", "lab/protocol", "lab/protocol/fairk", "lab/protocol/static", "lab/workload"},
	"internal/membership/leader": {"kmutex", "internal/membership/lease", "internal/membership/views"},
	"internal/membership/lease":  {"internal/drift", "kmutex"},
	"internal/node": {
		"chordring", "chordring/serfring", "internal/admin", "internal/admission", "internal/gateway", "internal/journal", "internal/membership", "internal/transport",
		"internal/transport/wire", "kmutex", "proxy", "telemetry",
	},
	"internal/inside": {"internal/node"},
	"kgate":           {"internal/admission", "internal/clusterkey", "internal/hostaddr", "internal/inside", "internal/node", "proxy", "proxy/downstream", "proxy/http1", "proxy/http1/adapt", "proxy/upstream"},
	"gateway":         {"internal/admission", "internal/inside", "internal/node", "kgate", "proxy", "telemetry", "telemetry/prom"},
	"examples/hello":  {"kgate"},
	"examples/three":  {"kgate"},
	"cmd/kgate-lab":   {"lab/bar", "lab/experiment", "lab/fuzz", "lab/meter", "lab/network", "lab/report"},
	"cmd/kgate": {
		"kgate", "client", "configs", "gateway", "internal/admin", "internal/admission", "internal/clusterkey", "internal/config", "internal/demo",
		"internal/hostaddr", "internal/journal", "internal/oncelog", "internal/peercert", "internal/socket", "lab/bar", "lab/meter", "lab/network", "lab/plan",
		"proxy", "proxy/downstream", "telemetry", "telemetry/otlp", "telemetry/prom",
	},
}

// pure packages import nothing with a clock, I/O, concurrency or randomness.
var pure = []string{"internal/drift", "internal/pool", "kmutex", "coordinator", "chordring", "internal/membership/leader", "internal/membership/lease", "replication"}

// timed packages are pure and get the time from their callers: they use the
// type time.Duration and its units, and nothing else of package time.
var timed = []string{"internal/drift", "internal/pool", "internal/membership/core", "internal/membership/leader", "internal/membership/lease", "replication"}

var units = regexp.MustCompile(`^time\.(Duration|Nanosecond|Microsecond|Millisecond|Second|Minute|Hour)$`)

var impure = []string{
	"context", "crypto/rand", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "sync", "time",
}

type goPackage struct {
	Dir, ImportPath  string
	GoFiles, Imports []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-C", "../..", "-json=Dir,ImportPath,GoFiles,Imports", "./...")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportsPointDownward(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		name, _ := nameOf(p.ImportPath)
		may, known := allowed[name]
		if !known {
			t.Errorf("package %s is new: say in this test what it may import", name)
			continue
		}
		seen++
		if slices.Contains(timed, name) {
			hasNoClock(t, p)
		}
		for _, path := range p.Imports {
			if other, ours := nameOf(path); ours && !slices.Contains(may, other) {
				t.Errorf("%s imports %s", name, other)
			}
			if slices.Contains(pure, name) && slices.Contains(impure, path) && (path != "time" || !slices.Contains(timed, name)) {
				t.Errorf("%s is pure and imports %s", name, path)
			}
		}
	}
	if seen != len(allowed) {
		t.Errorf("%d packages found, %d expected", seen, len(allowed))
	}
}

func hasNoClock(t *testing.T, p goPackage) {
	t.Helper()
	for _, name := range p.GoFiles {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range regexp.MustCompile(`\btime\.[A-Z]\w*`).FindAllString(string(source), -1) {
			if !units.MatchString(use) {
				t.Errorf("%s is pure and has %s in %s", p.ImportPath, use, name)
			}
		}
	}
}
