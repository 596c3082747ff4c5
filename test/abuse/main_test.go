package abuse

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/test/cluster"
)

var update = flag.Bool("update", false, "rewrite testdata")

// patience is how long a single thing may take that does not depend on luck.
const patience = 20 * time.Second

// soak asks for the long runs.
func soak() bool { return os.Getenv("KGATE_SOAK") != "" }

func TestMain(m *testing.M) {
	flag.Parse()
	code := cluster.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
