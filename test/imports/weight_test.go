package imports

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestWeightOfTheLibrary: what a program that imports kgate carries. Exporters, the
// configuration file's format and the command line are cmd/kgate's.
func TestWeightOfTheLibrary(t *testing.T) {
	const most = 310
	cmd := exec.CommandContext(t.Context(), "go", "list", "-C", "../..", "-deps", ".")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	own := func(path string) bool { // Go's own copies of other modules come with net/http
		return strings.HasPrefix(path, "vendor/")
	}
	if deps = slices.DeleteFunc(deps, own); len(deps) > most {
		t.Errorf("%d packages, %d are allowed", len(deps), most)
	}
	for _, path := range deps {
		for _, banned := range []string{"grpc", "yaml", "otlptrace", "alecthomas/kong", "kgate/internal/config"} {
			if strings.Contains(path, banned) {
				t.Errorf("the library imports %s", path)
			}
		}
	}
}
