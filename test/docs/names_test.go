package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// forContributors are the pages that may name tests: they are not for who runs a gateway.
var forContributors = []string{"tested.md", "costs.md", "lab.md", "http.md"} // http.md for its table of conformance

// TestOperatorsPages: who runs a gateway reads of no test.
func TestOperatorsPages(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if names := namedTest.FindAllString(string(text), -1); len(names) > 0 && !slices.Contains(forContributors, filepath.Base(page)) {
			t.Errorf("%s names %v: that belongs to tested.md", page, names)
		}
	}
}

// TestContractIsTested: what is promised under a fault has its line in tested.md, and nothing else
// has one.
func TestContractIsTested(t *testing.T) {
	promised, tested := firstCells(t, "guarantees.md", "## The contract"), firstCells(t, "tested.md", "## The contract")
	for _, fault := range promised {
		if !slices.Contains(tested, fault) {
			t.Errorf("tested.md has no line for %q", fault)
		}
	}
	for _, fault := range tested {
		if !slices.Contains(promised, fault) {
			t.Errorf("guarantees.md promises nothing for %q", fault)
		}
	}
	if len(promised) < 30 {
		t.Errorf("only %d promises", len(promised))
	}
}

// firstCells returns the first column of the table below a heading.
func firstCells(t *testing.T, page, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+heading)
	if !ok {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var cells []string
	for line := range strings.Lines(rest) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "|"), "|"); ok && strings.HasPrefix(line, "| ") {
			cells = append(cells, strings.TrimSpace(first))
		}
	}
	return cells[min(1, len(cells)):] // without the head
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
