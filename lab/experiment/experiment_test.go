package experiment

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// some runs those rows of an experiment for which keep returns true.
func some(t *testing.T, name string, size Size, parallel int, keep func(keys []string) bool) *Table {
	t.Helper()
	e, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := e.design(setting{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	d.cells = slices.DeleteFunc(d.cells, func(c cell) bool { return !slices.ContainsFunc(c.rows, keep) })
	table, err := NewRunner(Options{Parallel: parallel}).table(context.Background(), d, size.Seeds)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// with keeps the rows that have all of these values.
func with(values ...string) func([]string) bool {
	return func(keys []string) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(keys, v) })
	}
}

// Every plot names keys and figures that its table has, and shows a line.
func TestPlotsShowSomething(t *testing.T) {
	names := map[string]bool{}
	for _, e := range All() {
		if names[e.Name] || e.About == "" || e.Quick.Seeds < 2 || e.Full.Seeds < e.Quick.Seeds {
			t.Errorf("%s: a name twice, nothing about it, or no size", e.Name)
		}
		names[e.Name] = true
		for _, full := range []bool{false, true} {
			d, err := e.design(setting{Size: e.Quick, Full: full})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range e.Plots {
				if len(p.Title) > 62 {
					t.Errorf("%s: the title %q is wider than the plot", e.Name, p.Title)
				}
				if err := drawable(d, p); err != nil {
					t.Errorf("%s, full=%v, plot %q: %v", e.Name, full, p.Title, err)
				}
			}
		}
	}
}

func drawable(d *design, p Plot) error {
	for _, key := range append([]string{p.X}, p.Series...) {
		if !slices.Contains(d.keys, key) {
			return fmt.Errorf("no key %q", key)
		}
	}
	if !slices.ContainsFunc(d.figures, func(f Figure) bool { return f.Name == p.Y }) {
		return fmt.Errorf("no figure %q", p.Y)
	}
	xs := map[string]bool{}
	for _, c := range d.cells {
		for _, row := range c.rows {
			wanted := true
			for key, values := range p.Where {
				i := slices.Index(d.keys, key)
				wanted = wanted && i >= 0 && slices.Contains(values, row[i])
			}
			if wanted {
				xs[row[slices.Index(d.keys, p.X)]] = true
			}
		}
	}
	if len(xs) < 2 {
		return fmt.Errorf("%d points on the axis", len(xs))
	}
	return nil
}

// The same runs give the same table, byte for byte, today and on another day, and
// however many go on at once.
func TestGolden(t *testing.T) {
	keep := func(keys []string) bool { return with("open .8", "4")(keys) || with(closedPaper, "1")(keys) }
	table := some(t, "scv", Size{Seeds: 2, Entries: 1500}, 1, keep)
	if again := some(t, "scv", Size{Seeds: 2, Entries: 1500}, 7, keep); !reflect.DeepEqual(table, again) {
		t.Error("with seven runs at once the table is another one")
	}
	var got bytes.Buffer
	if err := table.WriteCSV(&got); err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere a product and a sum may be rounded once, and the runs are other ones")
	}
	path := filepath.Join("testdata", "scv.csv")
	if *rewrite {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the table is\n%swant\n%s", got.Bytes(), want)
	}
}

// Experiments of one sweep share its runs, and a run that fails ends them all.
func TestRunner(t *testing.T) {
	runs := 0
	e := func(name string) *Experiment {
		return &Experiment{
			Name: name, Quick: Size{Seeds: 3},
			design: func(setting) (*design, error) {
				return &design{name: "shared", keys: []string{"a"}, figures: []Figure{{Name: "seed"}}, cells: []cell{{
					rows:    [][]string{{"x"}, {"y"}},
					measure: func(seed uint64) ([][]float64, error) { runs++; return [][]float64{{float64(seed)}, {10}}, nil },
				}}}, nil
			},
			Claims: []*Claim{{Parts: []Part{{Value: figure("seed", "x"), Agrees: between(1, 3)}}}},
		}
	}
	r := NewRunner(Options{Parallel: 1})
	for _, name := range []string{"one", "two"} {
		result, err := r.Run(t.Context(), e(name))
		if err != nil || result.Claims[0].Verdict != Agrees || result.Claims[0].Found != "2" {
			t.Fatal(result, err)
		}
		x, y := result.Table.at("seed", "x"), result.Table.at("seed", "y")
		if x.Mean != 2 || x.Runs != 3 || math.Abs(x.Half-2.484) > .01 || y.Mean != 10 || y.Half != 0 {
			t.Errorf("%+v, %+v", x, y)
		}
		if none := result.Table.at("seed", "z"); !math.IsNaN(none.Mean) {
			t.Errorf("a row that is not there has %v", none)
		}
	}
	if runs != 3 {
		t.Errorf("%d runs for two experiments of three shared ones", runs)
	}
	broken := e("broken")
	failure := errors.New("planted")
	broken.design = func(setting) (*design, error) {
		return &design{name: "broken", cells: []cell{{rows: [][]string{{"x"}}, measure: func(uint64) ([][]float64, error) { return nil, failure }}}}, nil
	}
	if _, err := r.Run(t.Context(), broken); !errors.Is(err, failure) || !strings.Contains(err.Error(), "seed 1") {
		t.Errorf("a run that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewRunner(Options{}).Run(ctx, e("three")); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

func TestFind(t *testing.T) {
	if _, err := Find("nothing"); !errors.Is(err, errUnknown) || !strings.Contains(err.Error(), "003-fig2") {
		t.Error(err)
	}
}

func TestSlope(t *testing.T) {
	if b, explained := slope([]float64{1, 2, 3, 4}, []float64{3, 5, 7, 9}); b != 2 || math.Abs(explained-1) > 1e-12 {
		t.Errorf("slope %v, explained %v", b, explained)
	}
}
