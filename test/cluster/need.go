package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Need skips the test when a program is missing, and says which Debian package has
// it. With CI=true it fails: what CI does not run is not tested.
func Need(tb testing.TB, program, debianPackage string) {
	tb.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	why := fmt.Sprintf("needs %s (Debian: apt-get install %s)", program, debianPackage)
	if os.Getenv("CI") == "true" {
		tb.Fatal(why)
	}
	tb.Skip(why)
}
