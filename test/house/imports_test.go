// Package house holds the code to the architecture: who may import whom.
package house

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

const module = "github.com/kgate/kgate/"

// rooms lists, for each room, the other rooms that it may import: only what
// lies below it.
var rooms = map[string][]string{
	"kmutex":               {},
	"coordinator":          {"kmutex"},
	"chordring":            {},
	"chordring/serfring":   {"internal/places", "oncelog"},
	"oncelog":              {},
	"internal/clusterkey":  {},
	"internal/peercert":    {},
	"internal/places":      {},
	"transport":            {"internal/peercert", "internal/places", "kmutex", "oncelog"},
	"membership":           {"chordring", "chordring/serfring", "internal/peercert", "kmutex", "membership/leader", "membership/lease", "membership/raftfile", "oncelog"},
	"membership/raftfile":  {},
	"telemetry":            {"kmutex", "oncelog"},
	"internal/deadline":    {},
	"internal/httplist":    {},
	"internal/socket":      {},
	"internal/problems":    {"internal/httplist"},
	"proxy":                {"internal/deadline", "internal/httplist", "internal/problems", "oncelog", "proxy/upstream"},
	"proxy/upstream":       {"internal/deadline"},
	"config":               {"internal/socket"},
	"configs":              {},
	"configs/grafana":      {},
	"admin":                {"internal/problems"},
	"client":               {"internal/problems", "internal/socket"},
	"demo":                 {},
	"replication":          {"kmutex"},
	"replication/disk":     {"kmutex", "replication"},
	"gateway":              {"coordinator", "internal/pool", "kmutex", "membership", "oncelog", "replication", "replication/disk", "transport"},
	"internal/pool":        {"kmutex", "replication"},
	"lab/sim":              {},
	"lab/network":          {"lab/sim"},
	"lab/workload":         {},
	"lab/meter":            {},
	"lab/ring":             {},
	"lab/heirs":            {"chordring", "kmutex", "replication"},
	"lab/protocol":         {"lab/sim"},
	"lab/protocol/bv95":    {"lab/protocol", "lab/protocol/naimi"},
	"lab/protocol/central": {"lab/protocol", "lab/sim"},
	"lab/protocol/fairk":   {"chordring", "coordinator", "internal/pool", "kmutex", "lab/protocol", "lab/sim", "replication"},
	"lab/protocol/ideal":   {"lab/protocol", "lab/sim"},
	"lab/protocol/quorum":  {"chordring", "lab/protocol", "lab/sim"},
	"lab/protocol/static":  {"lab/protocol", "lab/sim"},
	"lab/rounds":           {"lab/meter", "lab/network", "lab/protocol", "lab/protocol/quorum", "lab/sim"},
	"lab/cluster":          {"internal/pool", "kmutex", "replication", "lab/protocol", "lab/protocol/fairk", "lab/sim", "membership/leader", "membership/lease"},
	"lab/fuzz":             {"lab/cluster", "lab/network", "membership/lease", "replication"},
	"lab":                  {"lab/meter", "lab/network", "lab/protocol", "lab/sim", "lab/workload"},
	"lab/check":            {"lab", "lab/protocol", "lab/sim", "lab/workload"},

	// The protocols of the other papers, and what judges them.
	"lab/handover":              {"lab/network", "lab/protocol", "lab/sim"},
	"lab/protocol/elmp":         {"lab/protocol", "lab/sim"},
	"lab/protocol/naimi":        {"lab/protocol", "lab/sim"},
	"lab/protocol/suzukikasami": {"lab/protocol", "lab/sim"},
	"lab/protocol/token":        {"lab/network", "lab/protocol", "lab/sim"},

	"lab/experiment": {
		"lab/cluster", "lab/handover", "lab/protocol/elmp", "lab/protocol/naimi", "lab/protocol/quorum", "lab/protocol/suzukikasami",
		"lab/protocol/token", "membership/lease",
		"lab", "lab/heirs", "lab/meter", "lab/network", "lab/protocol", "lab/protocol/bv95", "lab/protocol/central", "lab/protocol/fairk",
		"lab/protocol/ideal", "lab/protocol/static", "lab/ring", "lab/rounds", "lab/workload",
	},
	"lab/report":        {"lab/experiment", "lab/meter"},
	"lab/plan":          {"lab", "lab/experiment", "lab/meter", "lab/protocol", "lab/protocol/fairk", "lab/protocol/static", "lab/workload"},
	"membership/leader": {"kmutex", "membership/lease"},
	"membership/lease":  {"kmutex"},
	"cmd/kgate": {
		"admin", "chordring", "chordring/serfring", "client", "config", "configs", "demo", "gateway", "internal/clusterkey", "internal/peercert", "internal/socket", "kmutex",
		"lab/experiment", "lab/fuzz", "lab/meter", "lab/plan", "lab/report", "membership", "oncelog",
		"proxy", "telemetry", "transport",
	},
}

// pure rooms import nothing with a clock, I/O, concurrency or randomness.
var pure = []string{"internal/pool", "kmutex", "coordinator", "chordring", "membership/leader", "membership/lease", "replication"}

// timed rooms are pure and are told the time: they use the type time.Duration
// and its units, and nothing else of package time.
var timed = []string{"internal/pool", "membership/leader", "membership/lease", "replication"}

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
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=Dir,ImportPath,GoFiles,Imports", module+"...")
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
		room := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(room, "test/") || strings.HasPrefix(room, "bench") {
			continue
		}
		allowed, known := rooms[room]
		if !known {
			t.Errorf("room %s has no place in the house: say in this test what it may import", room)
			continue
		}
		seen++
		if slices.Contains(timed, room) {
			hasNoClock(t, p)
		}
		for _, path := range p.Imports {
			if other, ours := strings.CutPrefix(path, module); ours && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s", room, other)
			}
			if slices.Contains(pure, room) && slices.Contains(impure, path) && (path != "time" || !slices.Contains(timed, room)) {
				t.Errorf("%s is pure and imports %s", room, path)
			}
		}
	}
	if seen != len(rooms) {
		t.Errorf("%d rooms found, %d expected", seen, len(rooms))
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
