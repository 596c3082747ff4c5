package netns

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kgate/kgate/test/cluster"
)

func TestMain(m *testing.M) {
	code := cluster.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
