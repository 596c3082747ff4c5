package mutant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Change is text that stands in a source file exactly once, and what it is
// replaced by. File is relative to the directory of the test.
type Change struct{ File, Old, New string }

// Overlay writes the changed files beside the source tree and returns what to
// give to the go command's -overlay.
func Overlay(tb testing.TB, changes ...Change) string {
	tb.Helper()
	dir := tb.TempDir()
	replace := make(map[string]string)
	for _, c := range changes {
		path, err := filepath.Abs(filepath.FromSlash(c.File))
		if err != nil {
			tb.Fatal(err)
		}
		if replace[path] == "" {
			replace[path] = path
		}
		source, err := os.ReadFile(replace[path])
		if err != nil {
			tb.Fatal(err)
		}
		if n := strings.Count(string(source), c.Old); n != 1 {
			tb.Fatalf("%s has the text to change %d times: %q", c.File, n, c.Old)
		}
		if replace[path] == path {
			replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		}
		write(tb, replace[path], []byte(strings.Replace(string(source), c.Old, c.New, 1)))
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		tb.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	write(tb, overlay, data)
	return overlay
}

func write(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}
