package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kgate/kgate/lab/experiment"
	"github.com/kgate/kgate/lab/meter"
)

// series is one line of a chart.
type series struct {
	name   string
	points []point
}

type point struct {
	x float64
	y meter.Interval
}

// ends returns the ends of the error bar. What cannot be negative, as all measured
// figures, has no bar below 0, however wide its interval is.
func (p point) ends() (low, high float64) {
	half := finite(p.y.Half)
	low = p.y.Mean - half
	if p.y.Mean >= 0 {
		low = max(low, 0)
	}
	return low, p.y.Mean + half
}

// chart is a plot of a table, ready to be drawn.
type chart struct {
	plot   experiment.Plot
	series []series
	x, y   axis
	legend []entry
	height float64
}

// Sizes in the units of the view box.
const (
	width      = 480.
	plotHeight = 260.
	left       = 64.
	right      = 16.
	top        = 36.
	bottom     = 48.
	lineHeight = 18.
	charWidth  = 6.4 // of the legend's letters, about
)

// newChart picks the plot's rows out of the table.
func newChart(t *experiment.Table, p experiment.Plot) *chart {
	c := &chart{plot: p, series: pick(t, p)}
	c.x, c.y = axis{log: p.LogX}, axis{log: p.LogY}
	for _, s := range c.series {
		for _, pt := range s.points {
			c.x.include(pt.x)
			c.y.include(pt.y.Mean)
			low, high := pt.ends()
			c.y.include(low)
			c.y.include(high)
		}
	}
	if !c.y.log {
		c.y.include(0)
	}
	c.x.from, c.x.to = left, width-right
	c.y.from, c.y.to = top+plotHeight, top
	c.y.round()
	c.x.pad()
	c.place()
	return c
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func pick(t *experiment.Table, p experiment.Plot) []series {
	at := func(key string) int { return slices.Index(t.Keys, key) }
	x, y := at(p.X), slices.IndexFunc(t.Figures, func(f experiment.Figure) bool { return f.Name == p.Y })
	var all []series
	if x < 0 || y < 0 {
		return nil
	}
	for _, row := range t.Rows {
		wanted := true
		for key, values := range p.Where {
			wanted = wanted && slices.Contains(values, row.Keys[at(key)])
		}
		v, err := strconv.ParseFloat(row.Keys[x], 64)
		if !wanted || err != nil || math.IsNaN(row.Values[y].Mean) || p.LogY && row.Values[y].Mean <= 0 || p.LogX && v <= 0 {
			continue
		}
		var names []string
		for _, key := range p.Series {
			name := row.Keys[at(key)]
			if len(p.Series) > 1 {
				name = strings.ReplaceAll(key, "_", " ") + " " + name
			}
			names = append(names, name)
		}
		name := strings.Join(names, ", ")
		i := slices.IndexFunc(all, func(s series) bool { return s.name == name })
		if i < 0 {
			i = len(all)
			all = append(all, series{name: name})
		}
		all[i].points = append(all[i].points, point{v, row.Values[y]})
	}
	return all
}

// entry is where a name stands in the legend.
type entry struct{ x, y float64 }

// place sets the legend in rows below the axis.
func (c *chart) place() {
	x, y := left, top+plotHeight+bottom+lineHeight/2
	for _, s := range c.series {
		w := 28 + charWidth*float64(len(s.name)) + 16
		if x > left && x+w > width {
			x, y = left, y+lineHeight
		}
		c.legend = append(c.legend, entry{x, y})
		x += w
	}
	c.height = y + lineHeight
}

// write draws the chart. A chart that stands alone brings its style along.
func (c *chart) write(w io.Writer, alone bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, c.height, html.EscapeString(c.plot.Title))
	if alone {
		b.WriteString("<style>" + chartStyle + "</style>")
		fmt.Fprintf(&b, `<rect class="paper" width="%g" height="%g"/>`, width, c.height)
	}
	fmt.Fprintf(&b, `<text class="title" x="10" y="20">%s</text>`, html.EscapeString(c.plot.Title))
	c.axes(&b)
	for i, s := range c.series {
		c.line(&b, i, s)
	}
	for i, e := range c.legend {
		fmt.Fprintf(&b, `<g class="s%d"><path class="line" d="M%.1f %.1fh20"/>%s</g><text x="%.1f" y="%.1f">%s</text>`,
			i%colours, e.x, e.y-4, marker(i, e.x+10, e.y-4), e.x+26, e.y, html.EscapeString(c.series[i].name))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *chart) axes(b *strings.Builder) {
	for _, v := range c.y.ticks() {
		y := c.y.at(v)
		fmt.Fprintf(b, `<path class="grid" d="M%g %.1fH%g"/><text class="tick" text-anchor="end" x="%g" y="%.1f">%s</text>`, left, y, width-right, left-6, y+4, label(v))
	}
	for _, v := range c.x.ticks() {
		x := c.x.at(v)
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %gV%g"/><text class="tick" text-anchor="middle" x="%.1f" y="%g">%s</text>`, x, top, top+plotHeight, x, top+plotHeight+16, label(v))
	}
	fmt.Fprintf(b, `<path class="axis" d="M%g %gV%gH%g"/>`, left, top, top+plotHeight, width-right)
	fmt.Fprintf(b, `<text text-anchor="middle" x="%g" y="%g">%s</text>`, (left+width-right)/2, top+plotHeight+36, html.EscapeString(c.plot.XLabel))
	fmt.Fprintf(b, `<text text-anchor="middle" transform="translate(14 %g) rotate(-90)">%s</text>`, top+plotHeight/2, html.EscapeString(c.plot.YLabel))
}

func (c *chart) line(b *strings.Builder, i int, s series) {
	fmt.Fprintf(b, `<g class="s%d"><path class="line" d="`, i%colours)
	for j, p := range s.points {
		fmt.Fprintf(b, "%s%.1f %.1f", []string{"M", "L"}[min(j, 1)], c.x.at(p.x), c.y.at(p.y.Mean))
	}
	b.WriteString(`"/>`)
	for _, p := range s.points {
		x, y := c.x.at(p.x), c.y.at(p.y.Mean)
		fmt.Fprintf(b, `<g><title>%s: %s %s ± %s at %s</title>`, html.EscapeString(s.name), html.EscapeString(c.plot.YLabel), label(p.y.Mean), label(finite(p.y.Half)), label(p.x))
		if from, to := p.ends(); to > from {
			low, high := c.y.at(from), c.y.at(to)
			fmt.Fprintf(b, `<path class="error" d="M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6"/>`, x, low, high, x-3, low)
		}
		b.WriteString(marker(i, x, y) + "</g>")
	}
	b.WriteString("</g>")
}

// marker differs by series, so that lines can be told apart without colours.
func marker(i int, x, y float64) string {
	switch i % 5 {
	case 0:
		return fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="3.5"/>`, x, y)
	case 1:
		return fmt.Sprintf(`<path d="M%.1f %.1fh6.4v6.4h-6.4z"/>`, x-3.2, y-3.2)
	case 2:
		return fmt.Sprintf(`<path d="M%.1f %.1fl4.2 7.2h-8.4z"/>`, x, y-4.6)
	case 3:
		return fmt.Sprintf(`<path d="M%.1f %.1fl4.4 4.4l-4.4 4.4l-4.4-4.4z"/>`, x, y-4.4)
	default:
		return fmt.Sprintf(`<path d="M%.1f %.1fl4.2-7.2h-8.4z"/>`, x, y+4.6)
	}
}

// colours is the number of colours of chartStyle, which are Okabe and Ito's: colour-blind readers can
// tell them apart.
const colours = 7

const chartStyle = `
.chart{--ink:#1b1f24;--faint:#d5dae0;--paper:#fff;font:12px system-ui,sans-serif;width:100%;height:auto}
@media(prefers-color-scheme:dark){.chart{--ink:#e6e9ed;--faint:#3a4048;--paper:#15181c}}
.chart text{fill:var(--ink)}.chart .title{font-size:14px;font-weight:600}.chart .tick{font-size:11px}
.chart .paper{fill:var(--paper)}.chart .grid{stroke:var(--faint);stroke-width:.6}.chart .axis{stroke:var(--ink);fill:none}
.chart .line{fill:none;stroke:var(--c);stroke-width:1.6}.chart .error{stroke:var(--c);fill:none}.chart g{fill:var(--c)}
.chart .s0{--c:#0072b2}.chart .s1{--c:#d55e00}.chart .s2{--c:#009e73}.chart .s3{--c:#cc79a7}.chart .s4{--c:#e69f00}.chart .s5{--c:#56b4e9}.chart .s6{--c:#8a8f98}
`
