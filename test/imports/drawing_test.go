package imports

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "redraw the architecture")

const drawingFile = "../../docs/architecture.svg"

// purpose says in a few words what a box is for.
var purpose = map[string]string{
	"chordring":           "the home of a pool; serf",
	"client":              "the ticket API in Go",
	"cmd/kgate":           "the commands",
	"cmd/kgate-lab":       "the lab's commands",
	"coordinator":         "binding, late and early",
	"internal/admin":      "status, changes, tickets",
	"internal/config":     "the configuration file",
	"internal/gateway":    "drives the pools",
	"internal/membership": "carries the agreement",
	"internal/node":       "what a gateway is made of",
	"internal/pool":       "a pool at one gateway",
	"internal/transport":  "links between gateways",
	"kmutex":              "the algorithm",
	"kgate":               "the library",
	"gateway":             "the whole gateway in a program",
	"internal/inside":     "the door between both",
	"examples":            "programs that use it",
	"lab":                 "simulator and experiments",
	"proxy":               "the data plane",
	"replication":         "copies of tickets",
	"telemetry":           "metrics, traces, logs",
	"internal/demo":       "clients and an upstream",
	"internal/clusterkey": "the key of a cluster",
	"configs":             "examples, dashboards",
}

// TestDrawing holds the drawing of the architecture against the table: an arrow
// is an import.
func TestDrawing(t *testing.T) {
	want := draw(allowed)
	if *update {
		if err := os.WriteFile(drawingFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(drawingFile); err != nil || string(have) != want {
		t.Errorf("docs/architecture.svg is not what the table says: go test ./test/imports -update")
	}
}

// boxOf returns the box that a package is drawn in: a package and those below
// it are one box.
func boxOf(name string) string {
	parts := strings.Split(name, "/")
	switch parts[0] {
	case "internal", "cmd":
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

type graph map[string]map[string]bool

// boxes returns which box imports which, and the shared leaves: small packages
// that import none but each other.
func boxes(table map[string][]string) (g graph, leaves []string) {
	g = make(graph)
	for name, imports := range table {
		box := boxOf(name)
		switch box {
		case "internal/memnet", "internal/mutant", "internal/nametest", "internal/timing": // for tests
			continue
		}
		if g[box] == nil {
			g[box] = make(map[string]bool)
		}
		for _, other := range imports {
			if other := boxOf(other); other != box {
				g[box][other] = true
			}
		}
	}
	for again := true; again; {
		again = false
		for _, box := range slices.Sorted(maps.Keys(g)) {
			if len(g[box]) == 0 && purpose[box] == "" {
				leaves, again = append(leaves, box), true
				delete(g, box)
				for _, below := range g {
					delete(below, box)
				}
			}
		}
	}
	slices.Sort(leaves)
	return g, leaves
}

// reach returns all boxes below one.
func (g graph) reach(box string) map[string]bool {
	all := make(map[string]bool)
	for other := range g[box] {
		all[other] = true
		maps.Copy(all, g.reach(other))
	}
	return all
}

// direct returns the imports that are no detour shorter: an arrow from a to c is
// left out if arrows lead from a by way of b to c.
func (g graph) direct(box string) []string {
	var direct []string
	for other := range g[box] {
		detour := false
		for by := range g[box] {
			detour = detour || by != other && g.reach(by)[other]
		}
		if !detour {
			direct = append(direct, other)
		}
	}
	slices.Sort(direct)
	return direct
}

// rows places each box as far down as the boxes that import it need, and orders
// a row by where those stand.
func (g graph) rows() [][]string {
	depth := make(map[string]int)
	var place func(box string, at int)
	place = func(box string, at int) {
		if at >= depth[box] {
			depth[box] = at
			for other := range g[box] {
				place(other, at+1)
			}
		}
	}
	for box := range g {
		place(box, 0)
	}
	rows := make([][]string, 1+slices.Max(slices.Collect(maps.Values(depth))))
	for box, at := range depth {
		rows[at] = append(rows[at], box)
	}
	position := make(map[string]float64)
	for _, row := range rows {
		weight := make(map[string]float64)
		for _, box := range row {
			sum, n := 0.0, 0.0
			for above := range g {
				if slices.Contains(g.direct(above), box) {
					sum, n = sum+position[above], n+1
				}
			}
			weight[box] = sum / max(n, 1)
		}
		slices.SortFunc(row, func(a, b string) int { return cmp.Or(cmp.Compare(weight[a], weight[b]), strings.Compare(a, b)) })
		for i, box := range row {
			position[box] = float64(i) - float64(len(row)-1)/2
		}
	}
	return rows
}

const (
	boxWidth, boxHeight = 172.0, 44.0
	across, down        = 190.0, 92.0
)

type point struct{ x, y float64 }

// draw returns the table as a drawing.
func draw(table map[string][]string) string {
	g, leaves := boxes(table)
	rows := g.rows()
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row))
	}
	width, height := float64(widest)*across+20, float64(len(rows))*down+70
	at := make(map[string]point)
	for i, row := range rows {
		for j, box := range row {
			at[box] = point{width/2 + (float64(j)-float64(len(row)-1)/2)*across, 30 + float64(i)*down + boxHeight/2}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="system-ui, sans-serif" role="img" aria-label="Which package of kgate imports which">
<!-- Drawn from the table in test/imports: go test ./test/imports -update -->
<style>
  rect { fill: #fff; stroke: #64748b; rx: 6px } .pure rect { fill: #dcfce7; stroke: #15803d } .leaf rect { fill: #f1f5f9; stroke: none }
  path { fill: none; stroke: #94a3b8; stroke-width: 1.3 } .name { font-size: 13px; font-weight: 600; fill: #0f172a } .for { font-size: 11px; fill: #475569 }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#94a3b8;stroke:none"/></marker></defs>
<rect width="100%%" height="100%%" style="stroke:none"/>
`, width, height)
	for _, box := range slices.Sorted(maps.Keys(g)) {
		for _, other := range g.direct(box) {
			from, to := at[box], at[other]
			y1, y2 := from.y+boxHeight/2, to.y-boxHeight/2
			fmt.Fprintf(&b, `<path d="M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f" marker-end="url(#head)"/>`+"\n", from.x, y1, from.x, y1+34, to.x, y2-34, to.x, y2)
		}
	}
	for _, row := range rows {
		for _, box := range row {
			class := ""
			if slices.Contains(pure, box) {
				class = ` class="pure"`
			}
			p := at[box]
			fmt.Fprintf(&b, `<g%s text-anchor="middle"><rect x="%.0f" y="%.0f" width="%.0f" height="%.0f"/><text class="name" x="%.0f" y="%.0f">%s</text><text class="for" x="%.0f" y="%.0f">%s</text></g>`+"\n",
				class, p.x-boxWidth/2, p.y-boxHeight/2, boxWidth, boxHeight, p.x, p.y-3, html.EscapeString(box), p.x, p.y+13, html.EscapeString(purpose[box]))
		}
	}
	for i, leaf := range leaves {
		leaves[i] = strings.TrimPrefix(leaf, "internal/")
	}
	y := height - 52
	fmt.Fprintf(&b, `<g class="leaf"><rect x="10" y="%.0f" width="%.0f" height="42"/><text class="for" x="20" y="%.0f">internal, shared: %s</text>
<text class="for" x="20" y="%.0f">An arrow is an import; those that others imply are left out. Green: no clock, no I/O, no concurrency, no randomness. Packages below another one are in its box.</text></g>
</svg>
`, y, width-20, y+17, html.EscapeString(strings.Join(leaves, ", ")), y+34)
	return b.String()
}
