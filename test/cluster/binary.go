package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// BinaryVariable names a binary to test in place of the one that is built.
const BinaryVariable = "KGATE_TEST_BINARY"

// built holds what is built once per test process.
var built struct {
	mu       sync.Mutex
	dir      string
	binaries map[string]string // by package
}

// Main runs the tests of a package that uses this harness, and removes what was
// built for them. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, "cluster:", err)
			return max(code, 1)
		}
	}
	return code
}

// Binary returns the kgate binary. It is built at the first call.
func Binary(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(BinaryVariable); path != "" {
		return path
	}
	return Build(tb, "github.com/kgate/kgate/cmd/kgate")
}

// Build returns the binary of a main package of this module. It is built at the
// first call.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if path, ok := built.binaries[pkg]; ok {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "kgate-test-")
		if err != nil {
			tb.Fatal(err)
		}
		built.dir, built.binaries = dir, make(map[string]string)
	}
	path := filepath.Join(built.dir, filepath.Base(pkg))
	out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput()
	if err != nil {
		tb.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	built.binaries[pkg] = path
	return path
}
