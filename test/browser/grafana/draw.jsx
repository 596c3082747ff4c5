// Draws a Grafana dashboard as Grafana does, with Grafana's own components, on data
// that it asks a Prometheus for. What @grafana/ui does not have, and Grafana keeps in
// its server's front end, is drawn here: the grid, the heatmap and the exemplars.
import React from "react";
import { createRoot } from "react-dom/client";
import * as data from "@grafana/data";
import * as ui from "@grafana/ui";
import "uplot/dist/uPlot.min.css";

const params = new URLSearchParams(location.search);
const end = Number(params.get("end")), span = Number(params.get("span")), step = Number(params.get("step"));
const variables = {
  job: params.get("job"), pool: params.get("pool"), gateway: params.get("gateway") ?? ".*", datasource: "prometheus",
  __rate_interval: `${Math.round(1000 * Math.max(4 * Number(params.get("scrape")), step))}ms`,
};
const substitute = (text) => text.replace(/\$\{?(\w+)\}?/g, (all, name) => variables[name] ?? all);
const theme = data.createTheme({ colors: { mode: params.get("theme") ?? "dark" } });
const timeRange = { from: data.dateTime(1000 * (end - span)), to: data.dateTime(1000 * end), raw: { from: "", to: "" } };

async function ask(path, query) {
  const answer = await (await fetch(`${path}?${new URLSearchParams(query)}`)).json();
  if (answer.status !== "success") throw new Error(`${query.query}: ${answer.error}`);
  return answer.data;
}

const legend = (format, labels) => format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? "");

// frames are a query's answer as the data source for Prometheus gives it to panels: one
// value for each step, null where there is none.
async function frames(target) {
  const query = substitute(target.expr);
  const { result } = await ask("/api/v1/query_range", { query, start: target.instant ? end : end - span, end, step });
  const times = Array.from({ length: Math.floor(span / step) + 1 }, (_, i) => end - span + i * step);
  return result.map(({ metric, values }) => {
    const found = new Map(values.map(([t, v]) => [Math.round((t - end + span) / step), Number(v)]));
    return data.toDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: data.FieldType.time, config: { interval: 1000 * step }, values: times.map((t) => 1000 * t) },
        { name: "Value", type: data.FieldType.number, labels: metric, config: { displayNameFromDS: legend(target.legendFormat, metric) }, values: times.map((_, i) => found.get(i) ?? null) },
      ],
    });
  });
}

async function exemplars(target) {
  const [query] = substitute(target.expr).match(/\w+_bucket\{[^}]*\}/);
  const all = await ask("/api/v1/query_exemplars", { query, start: end - span, end });
  return all.flatMap((series) => series.exemplars.map((e) => ({ time: 1000 * e.timestamp, value: Number(e.value) })));
}

// registry says which options a field may have; Grafana's panels say so in its front end.
const option = (id, custom) => ({
  id: custom ? `custom.${id}` : id, path: id, name: id, isCustom: custom, editor: null, override: null,
  process: (value) => value, shouldApply: () => true, getItemsCount: () => 0,
});
const registry = new data.Registry(() => [
  ...["unit", "min", "max", "decimals", "displayName", "color", "thresholds", "noValue", "links", "mappings"].map((id) => option(id, false)),
  ...["drawStyle", "lineWidth", "fillOpacity", "showPoints", "stacking", "lineStyle", "lineInterpolation", "pointSize", "spanNulls", "axisPlacement",
    "scaleDistribution", "hideFrom", "axisSoftMax"].map((id) => option(id, true)),
]);

// overridden gives the fields the panel's options.
const overridden = (series, fieldConfig) => data.applyFieldOverrides({
  data: series, fieldConfig: { ...fieldConfig, defaults: { color: { mode: "palette-classic" }, ...fieldConfig.defaults } },
  replaceVariables: substitute, theme, timeZone: "utc", fieldConfigRegistry: registry,
});

function Stat({ panel, series, width, height }) {
  const o = panel.options;
  const values = () => data.getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: o.reduceOptions, replaceVariables: substitute, theme, data: series,
    sparkline: o.graphMode !== "none", timeZone: "utc",
  });
  return <ui.VizRepeater getValues={values} width={width} height={height} source={series} itemSpacing={3} renderCounter={1}
    autoGrid orientation={o.orientation} getAlignmentFactors={(all, w, h) => data.getDisplayValueAlignmentFactors(all)}
    renderValue={({ value, width, height, count, alignmentFactors }) => <ui.BigValue value={value.display} count={count} sparkline={value.sparkline}
      colorMode={o.colorMode} graphMode={o.graphMode} justifyMode={o.justifyMode} textMode={o.textMode} alignmentFactors={alignmentFactors}
      width={width} height={height} theme={theme} />} />;
}

// marked draws the dashboard's events where they begin.
const marked = (events) => (u) => {
  u.ctx.save();
  u.ctx.setLineDash([4, 4]);
  for (const { time, color } of events) {
    const x = u.valToPos(time, "x", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    u.ctx.strokeStyle = theme.visualization.getColorByName(color);
    u.ctx.beginPath(), u.ctx.moveTo(x, u.bbox.top), u.ctx.lineTo(x, u.bbox.top + u.bbox.height), u.ctx.stroke();
  }
  u.ctx.restore();
};

// happened asks for the dashboard's events. One lasts as long as its expression has a value.
async function happened(annotation) {
  const { result } = await ask("/api/v1/query_range", { query: substitute(annotation.expr), start: end - span, end, step });
  return result.flatMap(({ metric, values }) => values.filter(([t], i) => i === 0 || t - values[i - 1][0] > 1.5 * step).map(([t]) => (
    { time: 1000 * t, color: annotation.iconColor, title: legend(annotation.titleFormat, metric) })));
}

// diamonds marks exemplars, as Grafana does.
const diamonds = (points) => (u) => {
  u.ctx.save();
  u.ctx.fillStyle = theme.visualization.getColorByName("blue");
  for (const { time, value } of points) {
    const x = u.valToPos(time, "x", true), y = u.valToPos(value, u.axes[1].scale, true);
    if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
    u.ctx.translate(x, y), u.ctx.rotate(Math.PI / 4), u.ctx.fillRect(-4, -4, 8, 8), u.ctx.setTransform(1, 0, 0, 1, 0, 0);
  }
  u.ctx.restore();
};

function Lines({ panel, series, marks, events, width, height }) {
  return <ui.TimeSeries frames={series} structureRev={1} timeRange={timeRange} timeZone="utc" width={width} height={height}
    legend={panel.options.legend} options={panel.options}>
    {(config) => { if (marks.length) config.addHook("draw", diamonds(marks)); if (events.length) config.addHook("draw", marked(events)); return null; }}
  </ui.TimeSeries>;
}

// Heatmap draws a histogram's buckets, one row for each, as Grafana's panel does.
function Heatmap({ panel, series, width, height }) {
  const canvas = React.useRef();
  const rows = series.map((s) => ({ le: s.fields[1].labels.le, top: Number(s.fields[1].labels.le.replace("+Inf", "Infinity")), counts: new Map(s.fields[0].values.map((t, i) => [t, s.fields[1].values[i]])) }))
    .sort((a, b) => a.top - b.top);
  React.useEffect(() => {
    const c = canvas.current.getContext("2d"), left = 60, bottom = 24, format = data.getValueFormat(panel.options.yAxis.unit);
    const w = width - left, h = height - bottom, cell = h / rows.length;
    let most = 0;
    const counts = rows.map((row, i) => new Map([...row.counts].map(([t, v]) => {
      const n = v - (i > 0 ? rows[i - 1].counts.get(t) ?? 0 : 0);
      most = Math.max(most, n);
      return [t, n];
    })));
    c.font = "12px sans-serif";
    counts.forEach((row, i) => {
      for (const [t, n] of row) {
        if (!(n > 0)) continue;
        c.fillStyle = `hsl(25 90% ${20 + 55 * Math.sqrt(n / most)}%)`;
        c.fillRect(left + w * (t / 1000 - (end - span)) / span - w * step / span, h - (i + 1) * cell, w * step / span - 1, cell - 1);
      }
      if (i % Math.ceil(14 / cell) === 0 && Number.isFinite(rows[i].top)) {
        c.fillStyle = theme.colors.text.primary;
        c.fillText(data.formattedValueToString(format(rows[i].top)), 4, h - (i + .2) * cell);
      }
    });
    for (let i = 0; i < 4; i++) {
      c.fillStyle = theme.colors.text.primary;
      c.fillText(data.dateTimeFormat(1000 * (end - span + span * i / 4), { format: "HH:mm:ss", timeZone: "utc" }), left + w * i / 4, height - 6);
    }
  }, []);
  return <canvas ref={canvas} width={width} height={height} />;
}

const kinds = { stat: Stat, timeseries: Lines, heatmap: Heatmap };
const unit = 30, gap = 8; // of Grafana's grid
const total = Number(params.get("width") ?? 1500);

function Panel({ panel }) {
  const { w, h } = panel.gridPos;
  const width = w * (total + gap) / 24 - gap, height = h * (unit + gap) - gap;
  const Kind = kinds[panel.type];
  return <ui.PanelChrome title={panel.title} description={panel.description} width={width} height={height}
    titleItems={panel.links?.length ? <ui.Icon name="external-link-alt" /> : undefined}>
    {(w, h) => panel.series.length === 0 ? <div className="empty">No data</div> : <Kind panel={panel} series={panel.series} marks={panel.marks} events={panel.events} width={w} height={h} />}
  </ui.PanelChrome>;
}

function Dashboard({ rows }) {
  return rows.map(({ title, id, panels, y }) => <section className="dashboard-row" key={id}>
    <h2>{title}</h2>
    <div className="grid" style={{ height: Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h - y)) * (unit + gap) }}>
      {panels.map((p) => <div key={p.id} data-panel={p.title} style={{ position: "absolute", left: p.gridPos.x * (total + gap) / 24, top: (p.gridPos.y - y) * (unit + gap) }}>
        <Panel panel={p} />
      </div>)}
    </div>
  </section>);
}

async function load() {
  const dashboard = await (await fetch("/kgate.json")).json();
  const rows = [];
  const events = (await Promise.all(dashboard.annotations.list.map(happened))).flat();
  document.body.dataset.events = events.map((e) => e.title).join("\n");
  for (const panel of dashboard.panels) {
    if (panel.type === "row") {
      rows.push({ title: panel.title, id: panel.id, y: panel.gridPos.y + 1, panels: [] });
      continue;
    }
    const found = await Promise.all(panel.targets.map(frames));
    panel.series = overridden(found.flat(), panel.fieldConfig);
    panel.marks = panel.type === "timeseries" ? (await Promise.all(panel.targets.filter((t) => t.exemplar).map(exemplars))).flat() : [];
    panel.events = events;
    rows.at(-1).panels.push(panel);
  }
  return rows;
}

window.__grafana_public_path__ = "/public/";
const style = document.createElement("style");
style.textContent = `body { background: ${theme.colors.background.canvas}; color: ${theme.colors.text.primary}; width: ${total}px; font: 14px Inter, sans-serif; margin: 0; padding: 8px; }
  .dashboard-row h2 { font-size: 16px; font-weight: 500; margin: 8px 0; } .grid { position: relative; } .empty { color: ${theme.colors.text.secondary}; display: grid; height: 100%; place-items: center; font-size: 18px; }`;
document.head.append(style);
load().then((rows) => {
  createRoot(document.getElementById("root")).render(<data.ThemeContext.Provider value={theme}><ui.GlobalStyles /><ui.PortalContainer /><Dashboard rows={rows} /></data.ThemeContext.Provider>);
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.drawn = "yes"; }, 500));
});
