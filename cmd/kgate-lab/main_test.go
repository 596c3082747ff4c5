package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a command line and returns what it prints.
func command(t *testing.T, want int, args ...string) (out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := run(args, streams{&o, &e}); code != want {
		t.Fatalf("kgate-lab %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

func TestList(t *testing.T) {
	out, _ := command(t, exitOK, "list")
	for _, name := range []string{"003-fig2", "003-fig6", "scv", "late-cost", "100 x 2000"} {
		if !strings.Contains(out, name) {
			t.Errorf("the list lacks %s:\n%s", name, out)
		}
	}
}

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "figures")
	out, _ := command(t, exitOK, "run", "004-tab2", "--seeds", "2", "--out", dir)
	for _, want := range []string{"leave_percent", "| 004, 5.3, table 2 | overhead of departures", "| agrees |", "wrote " + dir} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	for _, name := range []string{"004-tab2.csv", "004-tab2-1.svg"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	_, err := command(t, exitUsage, "run", "003-fig9")
	if !strings.Contains(err, "there are 000-fig3a") {
		t.Errorf("an unknown experiment: %s", err)
	}
	command(t, exitUsage, "run", "003-fig6", "--latency", "fast")
	command(t, exitUsage, "run", "003-fig6", "--seeds", "-1")
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	command(t, exitOK, "report", "004-tab2", "--seeds", "2", "--out", dir)
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !bytes.Contains(page, []byte("kgate-lab report 004-tab2 --seeds 2 --out DIR")) {
		t.Errorf("%v: the page does not say how it was made", err)
	}
	command(t, exitUsage, "report", "nothing", "--out", dir)
	command(t, exitUsage, "report")
}

func TestClaims(t *testing.T) {
	command(t, exitUsage, "claims", "--paper", "005")
	if testing.Short() {
		t.Skip("-short")
	}
	out, _ := command(t, exitOK, "claims", "--paper", "004", "--seeds", "2")
	if !strings.Contains(out, "| 004, 5.1, equation 3 |") || strings.Contains(out, "| 003,") || !strings.Contains(out, "claims: ") {
		t.Errorf("the claims of 004 are\n%s", out)
	}
}
