package netns

import (
	"fmt"
	"os"
	"testing"

	"github.com/kgate/kgate/test/cluster"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := cluster.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
