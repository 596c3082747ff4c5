package grafana

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Dashboard returns the dashboard as Grafana's JSON.
func Dashboard() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // PromQL has > and &
	enc.SetIndent("", "  ")
	err := enc.Encode(document{
		Title:         "kgate",
		UID:           "kgate",
		Description:   "One pool of a fleet of kgate gateways: who waits, how long, how fairly, and what it costs.",
		Tags:          []string{"kgate"},
		SchemaVersion: 39,
		Editable:      true,
		GraphTooltip:  1, // one crosshair over all panels
		Refresh:       "10s",
		Time:          span{From: "now-15m", To: "now"},
		Templating:    list{variables},
		Annotations:   list{[]any{alerts}},
		Panels:        arrange(rows),
	})
	return out.Bytes(), err
}

// document is Grafana's dashboard, as far as it is used here.
type document struct {
	Title         string   `json:"title"`
	UID           string   `json:"uid"`
	Description   string   `json:"description"`
	Tags          []string `json:"tags"`
	SchemaVersion int      `json:"schemaVersion"`
	Editable      bool     `json:"editable"`
	GraphTooltip  int      `json:"graphTooltip"`
	Refresh       string   `json:"refresh"`
	Time          span     `json:"time"`
	Templating    list     `json:"templating"`
	Annotations   list     `json:"annotations"`
	Panels        []object `json:"panels"`
}

type (
	object = map[string]any
	list   struct {
		List []any `json:"list"`
	}
	span struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
)

// source is the data source of everything: what the variable says.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// variables that the operator chooses. Each offers what the ones before it leave.
// $gateway filters the rows that say "chosen gateways", and no other.
var variables = []any{
	object{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
	choice("job", "Fleet", `label_values(kgate_pool_capacity, job)`, nil),
	choice("pool", "Pool", `label_values(kgate_pool_capacity{job="$job"}, pool)`, nil),
	choice("gateway", "Gateways", `label_values(kgate_pool_capacity{job="$job",pool="$pool"}, gateway)`, object{
		"multi": true, "includeAll": true, "allValue": ".*",
		"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
	}),
}

// selectors are what the names in braces stand for.
var selectors = strings.NewReplacer(
	"{pool", `{job="$job",pool="$pool"`,
	`,pool}`, `,job="$job",pool="$pool"}`, // behind a pattern for names
	"{gateways", `{job="$job",pool="$pool",gateway=~"$gateway"`,
	"{fleet", `{job="$job"`,
	"{nodes", `{job="$job",gateway=~"$gateway"`,
)

func choice(name, label, query string, more object) object {
	const onTimeRange = 2 // gateways come and go
	v := object{
		"name": name, "label": label, "type": "query", "datasource": source,
		"query":      object{"query": query, "refId": name},
		"definition": query, "refresh": onTimeRange, "sort": 1,
	}
	for key, value := range more {
		v[key] = value
	}
	return v
}

// alerts marks in every panel when one of alerts.yaml has fired.
var alerts = object{
	"name": "Alerts", "datasource": source, "enable": true, "iconColor": "red",
	"expr":        `ALERTS{alertname=~"Kgate.*",alertstate="firing",job="$job"}`,
	"titleFormat": "{{alertname}}", "textFormat": "{{pool}} {{instance}}", "step": "10s",
}

const (
	width       = 24 // of Grafana's grid
	panelHeight = 8
	statHeight  = 4
	firstRowID  = 1000 // rows have ids like panels; nobody links to them
)

// arrange lays the panels out, each row's side by side.
func arrange(rows []row) []object {
	var out []object
	y := 0
	for i, r := range rows {
		out = append(out, object{
			"id": firstRowID + i, "type": "row", "title": r.title + " (" + string(r.scope) + ")", "collapsed": false,
			"panels": []any{}, "gridPos": at(0, y, width, 1),
		})
		y++
		for len(r.panels) > 0 {
			n, height := min(len(r.panels), perLine(len(r.panels))), panelHeight
			if r.panels[0].kind == stat {
				n, height = len(r.panels), statHeight
			}
			for j, p := range r.panels[:n] {
				d := p.draw()
				d["gridPos"] = at(j*width/n, y, (j+1)*width/n-j*width/n, height)
				out = append(out, d)
			}
			r.panels = r.panels[n:]
			y += height
		}
	}
	return out
}

// perLine says how many of n panels stand in the next line: two, three or four.
func perLine(n int) int {
	switch {
	case n <= 4:
		return n
	case n%3 == 1:
		return 4
	default:
		return 3
	}
}

func at(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

// draw returns the panel in Grafana's form.
func (p panel) draw() object {
	out := object{
		"id": p.id, "title": p.title, "description": p.about, "datasource": source,
		"targets": p.targets(),
	}
	switch p.kind {
	case heatmap:
		drawHeatmap(out, p.unit)
	case stat:
		drawStat(out, p)
	default:
		drawLines(out, p)
	}
	return out
}

// drawStat shows the last value, large, in the colour of its threshold.
func drawStat(out object, p panel) {
	steps := []object{}
	for i, t := range p.thresholds {
		step := object{"color": t.colour, "value": t.from}
		if i == 0 {
			step["value"] = nil // from minus infinity on
		}
		steps = append(steps, step)
	}
	out["type"] = "stat"
	out["fieldConfig"] = object{
		"defaults": object{
			"unit": p.unit, "noValue": "-", "color": object{"mode": "thresholds"},
			"thresholds": object{"mode": "absolute", "steps": steps},
		},
		// What is missing is good at 0.
		"overrides": []any{object{
			"matcher": object{"id": "byName", "options": "missing"},
			"properties": []any{object{"id": "thresholds", "value": object{"mode": "absolute", "steps": []object{
				{"color": "green", "value": nil}, {"color": "orange", "value": 1}, {"color": "red", "value": 2},
			}}}},
		}},
	}
	out["options"] = object{
		"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		"colorMode":     "background", "graphMode": "area", "justifyMode": "center", "textMode": "value_and_name", "orientation": "auto",
	}
	out["links"] = []any{
		object{"title": "What to do", "url": runbook, "targetBlank": true},
		object{"title": "What it means", "url": words, "targetBlank": true},
	}
}

// statusPage leads from a series of a gateway to that gateway's own page.
var statusPage = object{
	"title": "Status page of ${__field.labels.gateway}", "url": "http://${__field.labels.instance}/", "targetBlank": true,
}

func (p panel) targets() []object {
	var out []object
	for i, q := range p.queries {
		t := object{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "range": true,
			"expr": selectors.Replace(q.expr), "legendFormat": q.legend,
		}
		if p.kind == heatmap {
			t["format"] = "heatmap"
		}
		if q.exemplars {
			t["exemplar"] = true
		}
		out = append(out, t)
	}
	return out
}

func drawHeatmap(out object, u unit) {
	out["type"] = "heatmap"
	out["options"] = object{
		"calculate": false, // the buckets are the histogram's own
		"yAxis":     object{"unit": u},
		"color": object{
			"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "steps": 64, "reverse": false, "scale": "exponential", "exponent": 0.5,
		},
		"cellGap": 1,
		"tooltip": object{"mode": "single", "yHistogram": true},
		"legend":  object{"show": true},
	}
	out["fieldConfig"] = object{"defaults": object{"unit": u}, "overrides": []any{}}
}

func drawLines(out object, p panel) {
	style := object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
	if p.kind == stacked {
		style["fillOpacity"] = 40
		style["stacking"] = object{"mode": "normal", "group": "A"}
	}
	defaults := object{"unit": p.unit, "min": 0, "custom": style}
	for _, q := range p.queries {
		if strings.Contains(q.legend, "{{gateway}}") {
			defaults["links"] = []any{statusPage}
		}
	}
	if p.unit == share {
		defaults["max"] = 1
	}
	overrides := []any{}
	for _, q := range p.queries {
		if q.limit {
			overrides = append(overrides, dashed(q.legend))
		}
	}
	out["type"] = "timeseries"
	out["fieldConfig"] = object{"defaults": defaults, "overrides": overrides}
	out["options"] = object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []any{}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
}

// dashed makes the series of that name a limit for the others.
func dashed(name string) object {
	property := func(id string, value any) object { return object{"id": id, "value": value} }
	return object{
		"matcher": object{"id": "byName", "options": name},
		"properties": []any{
			property("custom.stacking", object{"mode": "none", "group": "A"}),
			property("custom.fillOpacity", 0),
			property("custom.lineWidth", 2),
			property("custom.lineStyle", object{"fill": "dash", "dash": []int{10, 10}}),
			property("color", object{"mode": "fixed", "fixedColor": "red"}),
		},
	}
}
