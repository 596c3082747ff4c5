package browser

import (
	"os"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
