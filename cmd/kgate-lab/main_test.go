package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// labRun runs a command line and returns what it prints.
func labRun(t *testing.T, want int, args ...string) (out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := run(args, streams{&o, &e}); code != want {
		t.Fatalf("kgate-lab %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

func TestLabList(t *testing.T) {
	out, _ := labRun(t, exitOK, "list")
	for _, name := range []string{"003-fig2", "003-fig6", "scv", "late-cost", "100 x 2000"} {
		if !strings.Contains(out, name) {
			t.Errorf("the list lacks %s:\n%s", name, out)
		}
	}
}

func TestLabRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "figures")
	out, _ := labRun(t, exitOK, "run", "003-fig6", "--seeds", "2", "--out", dir)
	for _, want := range []string{"lost_percent", "agrees: 20 % lost", "DIFFERS: 50 % lost", "003-fig6: four successors", "wrote " + dir} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
	for _, name := range []string{"003-fig6.csv", "003-fig6-1.svg"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	_, err := labRun(t, exitUsage, "run", "003-fig9")
	if !strings.Contains(err, "there are 000-fig3a") {
		t.Errorf("an unknown experiment: %s", err)
	}
	labRun(t, exitUsage, "run", "003-fig6", "--latency", "fast")
	labRun(t, exitUsage, "run", "003-fig6", "--seeds", "-1")
}

func TestLabReport(t *testing.T) {
	dir := t.TempDir()
	labRun(t, exitOK, "report", "003-fig6", "--seeds", "2", "--out", dir)
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !bytes.Contains(page, []byte("kgate-lab report 003-fig6 --seeds 2 --out DIR")) {
		t.Errorf("%v: the page does not say how it was made", err)
	}
	labRun(t, exitUsage, "report", "nothing", "--out", dir)
	labRun(t, exitUsage, "report")
}
