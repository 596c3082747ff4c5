package mutant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Change replaces the text Old, which stands in a source file exactly once, by New. File is relative to
// the directory of the test.
type Change struct{ File, Old, New string }

// Overlay writes the changed files outside the source tree and returns the file for the go command's
// -overlay.
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
		at, err := find(source, c)
		if err != nil {
			tb.Fatal(err)
		}
		if replace[path] == path {
			replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		}
		changed := string(source[:at]) + c.New + string(source[at+len(c.Old):])
		if err := os.WriteFile(replace[path], []byte(changed), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	overlay, err := writeOverlay(dir, replace)
	if err != nil {
		tb.Fatal(err)
	}
	return overlay
}

// find returns the offset of the text to change.
func find(source []byte, c Change) (int, error) {
	if n := strings.Count(string(source), c.Old); n != 1 {
		return 0, fmt.Errorf("%s has the text to change %d times: %q", c.File, n, c.Old)
	}
	return strings.Index(string(source), c.Old), nil
}

// writeOverlay writes the go command's overlay file and returns its path.
func writeOverlay(dir string, replace map[string]string) (string, error) {
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}
