package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/meter"
)

// result is one of a made-up experiment, with all that is awkward in it.
func result() *experiment.Result {
	point := func(mean, half float64) []meter.Interval { return []meter.Interval{{Mean: mean, Half: half, Runs: 3}} }
	return &experiment.Result{
		Experiment: &experiment.Experiment{
			Name: "made-up", About: "a < b & c",
			Plots: []experiment.Plot{
				{Title: "linear <&>", X: "n", Y: "wait_s", XLabel: "n", YLabel: "s", Series: []string{"protocol"}},
				{Title: "logarithmic", X: "n", Y: "wait_s", LogX: true, LogY: true, Series: []string{"protocol"}, Where: map[string][]string{"protocol": {"a"}}},
			},
		},
		Table: &experiment.Table{
			Keys: []string{"protocol", "n"}, Figures: []experiment.Figure{{Name: "wait_s", About: "a wait"}},
			Rows: []experiment.Row{
				{Keys: []string{"a", "1"}, Values: point(1, .25)},
				{Keys: []string{"a", "10"}, Values: point(3, 4)},
				{Keys: []string{"a", "100"}, Values: point(0, math.NaN())},
				{Keys: []string{"b \"<x>\"", "1"}, Values: point(2, 0)},
				{Keys: []string{"b \"<x>\"", "10"}, Values: point(math.NaN(), math.NaN())},
			},
		},
		Claims: []experiment.Judged{
			{Claim: &experiment.Claim{Paper: "003", Place: "4", Says: "one"}, Found: "1", Verdict: experiment.Agrees},
			{Claim: &experiment.Claim{Paper: "003", Place: "5", Says: "two <script>", Why: "it is three"}, Found: "3", Verdict: experiment.Differs},
		},
	}
}

func wellFormed(t *testing.T, name string, data []byte) (circles, paths int) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return circles, paths
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, data)
		}
		if e, ok := token.(xml.StartElement); ok {
			switch e.Name.Local {
			case "circle":
				circles++
			case "path":
				paths++
			}
		}
	}
}

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	names, err := WriteFiles(dir, result())
	if err != nil || strings.Join(names, " ") != "made-up.csv made-up-1.svg made-up-2.svg" {
		t.Fatal(names, err)
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	rows, err := csv.NewReader(bytes.NewReader(read("made-up.csv"))).ReadAll()
	if err != nil || len(rows) != 6 || strings.Join(rows[0], " ") != "protocol n wait_s wait_s_ci95" || strings.Join(rows[3], " ") != "a 100 0 " {
		t.Errorf("%v, %v", rows, err)
	}
	// Three points of a, and one in the legend; a logarithm leaves 0 out.
	if circles, _ := wellFormed(t, "linear", read("made-up-1.svg")); circles != 4 {
		t.Errorf("%d circles, want 4", circles)
	}
	if circles, _ := wellFormed(t, "logarithmic", read("made-up-2.svg")); circles != 3 {
		t.Errorf("%d circles, want 3", circles)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("files %v, %v", left, err)
	}
	file := filepath.Join(dir, "made-up.csv")
	if _, err := WriteFiles(file, result()); err == nil {
		t.Error("a file is no folder")
	}
}

// What cannot be written leaves nothing behind, and an older file alone.
func TestNoHalfFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	failure := errors.New("planted")
	for _, write := range []func(io.Writer) error{
		func(w io.Writer) error { _, err := w.Write([]byte("old")); return err },
		func(w io.Writer) error { _, _ = w.Write([]byte("ne")); return failure },
	} {
		err := writeFile(path, write)
		data, readErr := os.ReadFile(path)
		left, dirErr := os.ReadDir(dir)
		if string(data) != "old" || len(left) != 1 || readErr != nil || dirErr != nil {
			t.Errorf("after %v: %q, files %v, %v, %v", err, data, left, readErr, dirErr)
		}
	}
}

// Numbers stand within the frame, and larger ones further up and to the right.
func TestPlacesAreInTheFrame(t *testing.T) {
	for _, p := range result().Experiment.Plots {
		c := newChart(result().Table, p)
		for _, s := range c.series {
			if low, _ := s.points[1%len(s.points)].ends(); low < 0 {
				t.Errorf("%s: a bar down to %g", p.Title, low)
			}
			last := -1.0
			for _, pt := range s.points {
				x, y := c.x.at(pt.x), c.y.at(pt.y.Mean)
				if x < left || x > width-right || y < top || y > top+plotHeight || x <= last {
					t.Errorf("%s: %v is at %.1f, %.1f", p.Title, pt, x, y)
				}
				last = x
			}
		}
		if c.y.at(3) >= c.y.at(1) {
			t.Errorf("%s: 3 is not above 1", p.Title)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		a    axis
		want string
	}{
		{axis{low: 0, high: 370, used: true}, "0 100 200 300"},
		{axis{low: 0, high: .012, used: true}, "0 0.002 0.004 0.006 0.008 0.01 0.012"},
		{axis{low: .001, high: 1, log: true, used: true}, "0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1"},
		{axis{low: 8, high: 12_000, log: true, used: true}, "10 20 50 100 200 500 1000 2000 5000 10000"},
		{axis{low: 1, high: 1e6, log: true, used: true}, "1 10 100 1000 10000 100000 1e+06"},
		{axis{low: -3, high: 2, used: true}, "-3 -2 -1 0 1 2"},
		{axis{}, ""},
	} {
		var got []string
		for _, v := range c.a.ticks() {
			got = append(got, label(v))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %s, want %s", c.a, s, c.want)
		}
	}
}

// The page loads nothing, and text in a table cannot become markup.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := WriteReport(dir, "kgate-lab report --out DIR", "v1", []*experiment.Result{result()}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"1 agrees", "1 differs", "it is three", "two &lt;script&gt;", "a &lt; b &amp; c", "linear &lt;&amp;&gt;", "prefers-color-scheme", "width=device-width",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "<script") || strings.Contains(text, "<x>") {
		t.Error("the page has a script, or a name that became markup")
	}
	for _, link := range regexp.MustCompile(`(?:src|href|url|@import)[=( ]*["'(]?([^"') >]+)`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(link[1], "#") {
			t.Errorf("the page refers to %s", link[1])
		}
	}
}
