package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

const folder = "../../packaging/"

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// tool returns a system tool. Where it is missing the test is skipped; with
// CI=true it fails.
func tool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		miss := t.Skipf
		if os.Getenv("CI") == "true" {
			miss = t.Fatalf // what CI does not run is not tested
		}
		miss("needs %s (Debian: apt-get install %s)", name, pkg)
	}
	return path
}

// TestUnits has systemd read the units, with a program that exists.
func TestUnits(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	for _, name := range []string{"kgate.service", "kgate.socket"} {
		data, err := os.ReadFile(folder + "systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		data = []byte(strings.ReplaceAll(string(data), "/usr/bin/kgate", cluster.Binary(t)))
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", filepath.Join(dir, "kgate.service"), filepath.Join(dir, "kgate.socket"))
	if out, err := verify.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// 0 is the tightest, 10 no restriction at all; systemd calls less than 2 safe.
	const widest = 2.0
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", filepath.Join(dir, "kgate.service")).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	level := regexp.MustCompile(`Overall exposure level.*: ([0-9.]+)`).FindSubmatch(out)
	if level == nil {
		t.Fatalf("systemd-analyze security tells no level:\n%s", out)
	}
	exposure, err := strconv.ParseFloat(string(level[1]), 64)
	if err != nil || exposure >= widest {
		t.Errorf("exposure %s, want less than %v", level[1], widest)
	}
	t.Logf("exposure %s of 10", level[1])
}

// Files that the package is made of exist, scripts are what sh takes.
func TestPackageFiles(t *testing.T) {
	data, err := os.ReadFile(folder + "nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile(`(?m)(?:src: |: )(packaging/\S+)`).FindAllStringSubmatch(string(data), -1)
	if len(files) < 6 {
		t.Errorf("only %d files found in nfpm.yaml", len(files))
	}
	for _, f := range files {
		name := strings.TrimRight(f[1], ",")
		found, err := filepath.Glob("../../" + name)
		if err != nil || len(found) == 0 {
			t.Errorf("nfpm.yaml names %s, which is not there", name)
		}
		if strings.Contains(name, "/debian/p") {
			if out, err := exec.CommandContext(t.Context(), "sh", "-n", "../../"+name).CombinedOutput(); err != nil {
				t.Errorf("%s: %s", name, out)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestShare: a release brings what its documentation links to, and no source.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), tool(t, "bash", "bash"), "../../tools/share.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"configs/prometheus/rules.yaml", "configs/prometheus/alerts.yaml", "configs/grafana/dashboards/kgate.json", "configs/kgate.schema.json", "contrib/haproxy/kgate.lua",
	} {
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Error(err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range append(pages, filepath.Join(dir, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(page), m[1])
			}
		}
	}
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") {
			t.Errorf("%s is source", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
