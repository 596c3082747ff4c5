package prom

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "rewrite the table in docs/metrics.md")

const (
	tableFile  = "../../docs/metrics.md"
	tableBegin = "<!-- table: begin -->\n"
	tableEnd   = "<!-- table: end -->\n"
)

// TestTable compares the table in docs/metrics.md with the registry: names,
// types, labels and meanings.
func TestTable(t *testing.T) {
	m, reg := newMetrics(t, nil)
	countEverything(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "kgate_") {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), labelCell(f), f.GetHelp())
		}
	}
	data, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(data), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no table between %q and %q", tableFile, tableBegin, tableEnd)
	}
	if table == b.String() {
		return
	}
	if *update {
		if err := os.WriteFile(tableFile, []byte(before+tableBegin+b.String()+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s has:\n%s\nthe registry has:\n%s\nrewrite it with: go test ./telemetry/prom -run TestTable -update", tableFile, table, b.String())
}

// labelCell lists the labels, with the values where they are a short list.
func labelCell(f *dto.MetricFamily) string {
	values := map[string][]string{}
	var names []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			name := l.GetName()
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			if !slices.Contains(values[name], l.GetValue()) {
				values[name] = append(values[name], l.GetValue())
			}
		}
	}
	var cells []string
	for _, name := range names {
		slices.Sort(values[name])
		cell := "`" + name + "`"
		if slices.Contains([]string{"outcome", "type", "direction", "state", "result", "reason", "what", "status", "use", "connection", "log"}, name) {
			cell += " (" + strings.Join(values[name], ", ") + ")"
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, ", ")
}
