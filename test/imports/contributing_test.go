package imports

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestContributing holds the table of layers in CONTRIBUTING.md against the imports.
func TestContributing(t *testing.T) {
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| layer | packages |")
	table, _, _ = strings.Cut(table, "\n\n")
	row := make(map[string]int)
	for i, line := range strings.Split(table, "\n") {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			if _, known := allowed[name[1]]; !known {
				t.Errorf("there is no package %s", name[1])
			}
			row[name[1]] = i
		}
	}
	if len(row) < 15 {
		t.Errorf("%d packages in the table", len(row))
	}
	for name, at := range row {
		for _, other := range allowed[name] {
			if below, listed := row[other]; listed && below <= at {
				t.Errorf("%s imports %s, which is not in a row below", name, other)
			}
		}
	}
}
