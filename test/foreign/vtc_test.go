package foreign

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// TestVarnishtest runs testdata/vtc: clients and upstreams in Varnish's language for tests, with the
// gateway between them; if others are asked for, nginx and HAProxy beside it.
func TestVarnishtest(t *testing.T) {
	cluster.Need(t, "varnishtest", "varnish")
	files, err := filepath.Glob("testdata/vtc/*.vtc")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases: ", err)
	}
	upstream := cluster.ReservePort(t)
	all := before(t, upstream)
	if !others() {
		all = all[:1]
	}
	for _, s := range all {
		var failed []string
		for _, file := range files {
			said, err := runVarnishtest(t, file, s.addr, upstream)
			if err == nil {
				continue
			}
			failed = append(failed, strings.TrimSuffix(filepath.Base(file), ".vtc"))
			if s.name == "kgate" {
				t.Errorf("%s: %v\n%s", file, err, said)
			}
		}
		t.Logf("%s passes %d of %d; not %s", s.name, len(files)-len(failed), len(files), strings.Join(failed, ", "))
	}
}

// runVarnishtest returns what it says, and an error if the case has failed.
func runVarnishtest(t *testing.T, file, proxy, upstream string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "varnishtest", "-t", "10", "-D", "proxy="+proxy, "-D", "upstream="+upstream, file)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}
