package imports

import (
	"os"
	"path"
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

// TestContributingNamesFiles: the files that CONTRIBUTING.md sends a reader to are there,
// and so is what it names in them.
func TestContributingNamesFiles(t *testing.T) {
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walks, _ := strings.Cut(string(text), "## How things travel")
	walks, _, _ = strings.Cut(walks, "## How we work")
	seen, last, content := 0, "", ""
	for _, m := range regexp.MustCompile("(\\(?)`([^`]+)`").FindAllStringSubmatch(walks, -1) {
		name := m[2]
		switch {
		case regexp.MustCompile(`\.(go|json)$`).MatchString(name):
			data, err := os.ReadFile("../../" + name)
			if err != nil { // beside the one before
				name = path.Join(path.Dir(last), name)
				data, err = os.ReadFile("../../" + name)
			}
			if err != nil {
				t.Errorf("there is no %s, nor beside %s", m[2], last)
				continue
			}
			seen++
			last, content = name, string(data)
		case m[1] != "" && !regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).MatchString(content):
			t.Errorf("%s has no %s", last, name)
		}
	}
	if seen < 25 {
		t.Errorf("%d files are named", seen)
	}
}
