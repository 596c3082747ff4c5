package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)\n```go\n(.*?)```")

// TestGoIsFromExamples: the Go in the pages is part of an example that is compiled and
// run.
func TestGoIsFromExamples(t *testing.T) {
	var examples strings.Builder
	for _, file := range []string{"../../example_test.go", "../../client/example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples.WriteString(flat(string(text)))
	}
	seen := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			seen++
			if !strings.Contains(examples.String(), flat(block[1])) {
				t.Errorf("%s: no example has\n%s", filepath.Base(page), block[1])
			}
		}
	}
	if seen == 0 {
		t.Error("no page has any Go")
	}
}

// flat is text without its indentation.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}
