package transport

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Every cause that is declared is in the table, in order, and those that call for
// attention have their counters from the start.
func TestCausesAreTheConstants(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared, attention []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Cause") {
			value := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
			if declared = append(declared, value); !Cause(value).Expected() {
				attention = append(attention, value)
			}
		}
		return true
	})
	var table []string
	for _, c := range causes {
		table = append(table, string(c))
	}
	if len(declared) < 10 || !slices.Equal(table, declared) {
		t.Errorf("the table has %v\nconstants:   %v", table, declared)
	}
	var counted []string
	for _, c := range Causes() {
		counted = append(counted, string(c))
	}
	if !slices.Equal(counted, attention) {
		t.Errorf("counted from the start %v\nwant %v", counted, attention)
	}
}
