// Package grafana_test checks dashboards/kgate.json, which users import into Grafana 10
// or later. The dashboard is written by hand: it needs none of the recording rules, and
// its data source, the fleet (the scrape job), the pool and the gateways are variables.
// test/prometheus runs its queries, and test/browser draws it.
package grafana_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	file  = "dashboards/kgate.json"
	width = 24 // of Grafana's grid
)

// imported is the dashboard as Grafana reads it.
type imported struct {
	UID        string
	Templating struct {
		List []struct {
			Name, Type string
			Datasource *dataSource
			Query      any
		}
	}
	Annotations struct {
		List []struct {
			Datasource dataSource
			Expr       string
		}
	}
	Links  []struct{ URL string }
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               *dataSource
		FieldConfig              struct{ Defaults struct{ Unit string } }
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct {
			RefID, Expr, LegendFormat string
		}
	}
}

type dataSource struct{ Type, UID string }

func load(t *testing.T) *imported {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := new(imported)
	if err := json.Unmarshal(data, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// chosen is the only data source there is: the one that the operator chooses.
var chosen = dataSource{"prometheus", "${datasource}"}

func TestPanels(t *testing.T) {
	d := load(t)
	ids, titles := make(map[int]bool), make(map[string]bool)
	for i, p := range d.Panels {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("%q: another panel has its title or its id, %d", p.Title, p.ID)
		}
		ids[p.ID], titles[p.Title] = true, true
		for _, other := range d.Panels[:i] {
			if a, b := p.GridPos, other.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q overlaps %q", p.Title, other.Title)
			}
		}
		if p.GridPos.X+p.GridPos.W > width {
			t.Errorf("%q is not within the grid", p.Title)
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%q has no description, unit or query", p.Title)
		}
		if p.Datasource == nil || *p.Datasource != chosen {
			t.Errorf("%q has the data source %v", p.Title, p.Datasource)
		}
		refs := make(map[string]bool)
		for _, q := range p.Targets {
			if refs[q.RefID] || q.LegendFormat == "" {
				t.Errorf("%q: query %s has the name of another one, or no legend", p.Title, q.RefID)
			}
			refs[q.RefID] = true
		}
	}
	if first := d.Panels[1]; first.Type != "stat" || first.Title != "Upstreams" {
		t.Errorf("the first panel is %q", first.Title)
	}
}

// TestScopes: $gateway filters every query of the rows that say so, and no other.
func TestScopes(t *testing.T) {
	filtered := false
	for _, p := range load(t).Panels {
		if p.Type == "row" {
			filtered = strings.HasSuffix(p.Title, "(chosen gateways)")
			if !filtered && !strings.HasSuffix(p.Title, "(all gateways)") {
				t.Errorf("row %q does not say which gateways it is of", p.Title)
			}
			continue
		}
		for _, q := range p.Targets {
			if strings.Contains(q.Expr, "$gateway") != filtered {
				t.Errorf("%q, in a row that is filtered (%v): %s", p.Title, filtered, q.Expr)
			}
		}
	}
}

// TestVariables: there is one for the data source, the fleet, the pool and the
// gateways; what is used is there, and what is there is used.
func TestVariables(t *testing.T) {
	d := load(t)
	var have []string
	for _, v := range d.Templating.List {
		have = append(have, v.Name)
		if v.Type != "datasource" && (v.Datasource == nil || *v.Datasource != chosen) {
			t.Errorf("%s asks the data source %v", v.Name, v.Datasource)
		}
	}
	if want := []string{"datasource", "job", "pool", "gateway", "instance"}; !slices.Equal(have, want) {
		t.Errorf("variables %v, want %v", have, want)
	}
	used := map[string]bool{"datasource": true}
	texts := d.expressions(t)
	for _, l := range d.Links {
		texts = append(texts, l.URL)
	}
	for _, expr := range texts {
		for _, name := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(expr, -1) {
			used[name[1]] = true
			if !slices.Contains(have, name[1]) && name[1] != "__rate_interval" {
				t.Errorf("there is no variable %s: %s", name[1], expr)
			}
		}
		if strings.Contains(expr, "kgate") && strings.ContainsAny(expr, "{") && !strings.Contains(expr, `job="$job"`) && !strings.HasPrefix(expr, "label_values(") {
			t.Errorf("adds up over all fleets: %s", expr)
		}
	}
	for _, name := range have {
		if !used[name] {
			t.Errorf("nothing uses the variable %s", name)
		}
	}
}

// TestMetrics: every metric that is asked for is one that docs/metrics.md lists, and
// every one that it lists is shown somewhere.
func TestMetrics(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string) // series to metric
	// The gauge of slots is for alerts: of gateways that are scraped one after the other
	// it shows no sum that anybody should look at.
	shown := map[string]bool{"kgate_build_info": true, "kgate_in_flight": true}
	for _, m := range regexp.MustCompile("(?m)^\\| `(kgate_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(doc), -1) {
		suffixes := []string{""}
		if m[2] == "histogram" {
			suffixes = []string{"", "_bucket", "_sum", "_count"}
		}
		for _, suffix := range suffixes {
			documented[m[1]+suffix] = m[1]
		}
	}
	// Those of the Go and process collectors, which are not in the table.
	common := []string{"go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
	for _, expr := range load(t).expressions(t) {
		for _, name := range regexp.MustCompile(`\b(kgate|go|process)_\w+`).FindAllString(expr, -1) {
			metric, known := documented[name]
			if !known && !slices.Contains(common, name) {
				t.Errorf("there is no metric %s: %s", name, expr)
			}
			shown[metric] = true
		}
	}
	for _, metric := range documented {
		if !shown[metric] {
			t.Errorf("no panel shows %s", metric)
			shown[metric] = true
		}
	}
}

// TestNamedPanels: what the pages call a panel is the title of one.
func TestNamedPanels(t *testing.T) {
	titles := make(map[string]bool)
	for _, p := range load(t).Panels {
		for title := p.Title; title != ""; {
			titles[title] = true // and, for short, what is before the comma
			title, _, _ = strings.Cut(title, ",")
			if titles[title] {
				break
			}
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`[Pp]anels? \*([^*]+)\*(?:\s+and\s+\*([^*]+)\*)?`).FindAllStringSubmatch(string(text), -1) {
			for _, title := range m[1:] {
				if named++; title != "" && !titles[title] && !titles[title+" (all gateways)"] {
					t.Errorf("%s: no panel is called %q", page, title)
				}
			}
		}
	}
	if named < 10 {
		t.Errorf("only %d panels are named", named)
	}
}

// expressions returns all PromQL there is.
func (d *imported) expressions(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			text, _ := q["query"].(string)
			all = append(all, text)
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, a.Expr)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	if len(all) < 40 {
		t.Fatalf("%d expressions: the dashboard has lost its panels", len(all))
	}
	return all
}
