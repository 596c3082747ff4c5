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
	binaries map[string]string // by directory of the main package
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
	return Build(tb, "../../cmd/kgate")
}

// Build returns the binary of the main package in a directory, which is relative
// to the test's. It is built at the first call, with the module versions of that
// package's own go.mod, as a release is.
func Build(tb testing.TB, dir string) string {
	tb.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if path, ok := built.binaries[dir]; ok {
		return path
	}
	if built.dir == "" {
		temp, err := os.MkdirTemp("", "kgate-test-")
		if err != nil {
			tb.Fatal(err)
		}
		built.dir, built.binaries = temp, make(map[string]string)
	}
	path := filepath.Join(built.dir, filepath.Base(dir))
	build := exec.Command("go", "build", "-C", dir, "-o", path, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	if err != nil {
		tb.Fatalf("go build -C %s: %v\n%s", dir, err, out)
	}
	built.binaries[dir] = path
	return path
}
