package peers

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/test/cluster"
)

// patience is how long a single thing may take that does not depend on luck.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	code := cluster.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// need skips the test when a program is missing.
func need(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	why := fmt.Sprintf("needs %s (Debian package %s)", program, debianPackage)
	if os.Getenv("CI") == "true" {
		t.Fatal(why) // what CI does not run is not tested
	}
	t.Skip(why)
}

// run returns what a program prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}
