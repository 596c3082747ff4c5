package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"

	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/meter"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"charts": charts, "interval": interval,
}).Parse(pageText))

// writePage writes the results as one page that needs nothing else, with how they
// were made.
func writePage(w io.Writer, command, version string, results []*experiment.Result) error {
	verdicts := make(map[experiment.Verdict]int)
	for _, r := range results {
		for _, c := range r.Claims {
			verdicts[c.Verdict]++
		}
	}
	return page.Execute(w, map[string]any{
		"Command": command, "Version": version, "Results": results, "Verdicts": verdicts, "ChartStyle": template.CSS(chartStyle),
	})
}

// WriteReport writes index.html, and the files of each result beside it, into dir.
func WriteReport(dir, command, version string, results []*experiment.Result) error {
	for _, r := range results {
		if _, err := WriteFiles(dir, r); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(dir, "index.html"), func(w io.Writer) error { return writePage(w, command, version, results) })
}

func charts(r *experiment.Result) (template.HTML, error) {
	var b bytes.Buffer
	for _, p := range r.Experiment.Plots {
		b.WriteString("<figure>")
		if err := newChart(r.Table, p).write(&b, false); err != nil {
			return "", err
		}
		b.WriteString("</figure>")
	}
	return template.HTML(b.String()), nil // every text in it was escaped as it was drawn
}

func interval(v meter.Interval) string {
	switch {
	case math.IsNaN(v.Mean):
		return "–"
	case math.IsNaN(v.Half) || v.Half < 1e-9*math.Abs(v.Mean):
		return fmt.Sprintf("%.4g", v.Mean)
	}
	return fmt.Sprintf("%.4g ± %.2g", v.Mean, v.Half)
}
