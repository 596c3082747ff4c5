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
	"kmutex":             {},
	"coordinator":        {"kmutex"},
	"chordring":          {},
	"chordring/serfring": {"oncelog"},
	"oncelog":            {},
	"transport":          {"kmutex", "oncelog"},
	"membership":         {"chordring", "chordring/serfring", "kmutex", "oncelog"},
	"telemetry":          {"kmutex"},
	"proxy":              {},
	"config":             {},
	"admin":              {},
	"client":             {},
	"replication":        {"kmutex"},
	"replication/disk":   {"kmutex", "replication"},
	"demo":               {},
	"gateway":            {"coordinator", "kmutex", "membership", "oncelog", "transport"},
	"cmd/kgate": {
		"admin", "chordring/serfring", "client", "config", "demo", "gateway", "kmutex", "membership",
		"proxy", "telemetry", "transport",
	},
}

// pure rooms import nothing with a clock, I/O, concurrency or randomness.
var pure = []string{"kmutex", "coordinator", "chordring", "replication"}

// durations are pure rooms that have lengths of time in their types; they may
// import time for time.Duration and its constants.
var durations = []string{"replication"}

var impure = []string{
	"context", "crypto/rand", "io/fs", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "sync", "time",
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
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
		for _, path := range p.Imports {
			if other, ours := strings.CutPrefix(path, module); ours && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s", room, other)
			}
			if path == "time" && slices.Contains(durations, room) {
				continue
			}
			if slices.Contains(pure, room) && slices.Contains(impure, path) {
				t.Errorf("%s is pure and imports %s", room, path)
			}
		}
	}
	if seen != len(rooms) {
		t.Errorf("%d rooms found, %d expected", seen, len(rooms))
	}
}

// clock is what of package time is more than a length.
var clock = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker|Time|Timer|Ticker)\b`)

func TestDurationsAreNoClocks(t *testing.T) {
	for _, room := range durations {
		files, err := filepath.Glob(filepath.Join("..", "..", room, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", room, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if found := clock.Find(source); found != nil {
				t.Errorf("%s uses %s", file, found)
			}
		}
	}
}
