package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/kgate/kgate/test/cluster"
)

// tables are printed when all benchmarks are done, in the order of their first
// lines.
var tables []*table

// table is one comparison.
type table struct {
	title string
	head  string // columns, with tabs between them
	rows  []string
	notes []string
}

// newTable returns the table of a benchmark, and whether it is already filled:
// testing runs a benchmark again that took less time than -benchtime.
func newTable(title, head string) (t *table, filled bool) {
	for _, t := range tables {
		if t.title == title {
			return t, true
		}
	}
	t = &table{title: title, head: head}
	tables = append(tables, t)
	return t, false
}

func (t *table) row(format string, args ...any) {
	t.rows = append(t.rows, fmt.Sprintf(format, args...))
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (t *table) print(out *strings.Builder) {
	fmt.Fprintf(out, "\n%s\n", t.title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t\n", t.head)
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t\n", r)
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, n := range t.notes {
		fmt.Fprintf(out, "  %s\n", n)
	}
}

func TestMain(m *testing.M) {
	code := cluster.Main(m)
	if len(tables) > 0 {
		var out strings.Builder
		fmt.Fprintf(&out, "\n%s/%s, %d cores, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
		for _, t := range tables {
			t.print(&out)
		}
		fmt.Print(out.String())
	}
	os.Exit(code)
}

// median of values, which must not be empty.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
