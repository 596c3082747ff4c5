package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestBrokenFiles pins down what a user reads about each broken file.
func TestBrokenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d broken files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse(name, data)
			if err == nil {
				t.Fatalf("accepted: %+v", c)
			}
			if !errors.Is(err, errInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
			checkGolden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
			for _, e := range each(err) {
				if e.File != name || e.Hint == "" || e.Line == 0 && !slices.Contains(withoutLine, name) {
					t.Errorf("file %q, line %d, hint %q: each error has all three", e.File, e.Line, e.Hint)
				}
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, name) && strings.TrimSpace(line) != "" {
					t.Errorf("line without the file's name: %s", line)
				}
			}
		})
	}
}

// withoutLine are files of which no line can be blamed.
var withoutLine = []string{"no-key.yaml", "binary.yaml", "comment-only.yaml", "empty.yaml", "utf16.yaml"}

// each returns the errors that err joins.
func each(err error) []*valueError {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		var e *valueError
		if !errors.As(err, &e) {
			return nil
		}
		return []*valueError{e}
	}
	var all []*valueError
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}

// TestErrorOfEveryKey: what a user reads is pinned down for each key.
func TestErrorOfEveryKey(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(indexes.ReplaceAllString(string(data), "[]"))
	}
	for _, group := range newReference(t).groups() {
		for _, key := range group.below {
			if len(key.below) == 0 && !strings.Contains(all.String(), key.path) {
				t.Errorf("testdata/broken has no error of %s", key.path)
			}
		}
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
