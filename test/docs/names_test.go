package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// TestRulesAreTested: a table that has a column for tests names one in each row. A dash says
// that there is none, and the row what is left to the reader.
func TestRulesAreTested(t *testing.T) {
	rules := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		inTable, tests := false, false
		for i, line := range strings.Split(string(text), "\n") {
			cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, ""), "|"), "|")
			last := strings.TrimSpace(cells[len(cells)-1])
			switch {
			case !strings.HasPrefix(line, "|"):
				inTable = false
			case !inTable:
				inTable, tests = true, strings.HasPrefix(strings.ToLower(last), "test")
			case tests && strings.Trim(last, "-") != "":
				if rules++; !namedTest.MatchString(last) {
					t.Errorf("%s:%d: no test is named for %q", page, i+1, strings.TrimSpace(cells[0]))
				}
			}
		}
	}
	if rules < 60 {
		t.Errorf("only %d rules have a test", rules)
	}
}

// TestNamedTests: what a page says is shown by a test has one of that name.
func TestNamedTests(t *testing.T) {
	declared := make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declaredTest.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range namedTest.FindAllString(string(text), -1) {
			named++
			if !declared[name] {
				t.Errorf("%s names %s, and there is no such test", page, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named", named)
	}
}
