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

// run returns what a program prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}
