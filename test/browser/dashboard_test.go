package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/prometheus"
)

// TestDashboard draws the dashboard with Grafana's own components on what a
// Prometheus scrapes from a fleet at work, and reads what is written there: while all
// is well, when a gateway has been killed, and when it is back.
func TestDashboard(t *testing.T) {
	cluster.OnlySoak(t, "test/prometheus asks what each panel asks")
	chrome := browser(t)
	script := bundle(t)
	const k = 6
	_, upstream := cluster.ServeUpstream(t, &demo.Upstream{Hold: 200 * time.Millisecond, SCV: 1})
	c := cluster.Start(t, cluster.Options{K: k, Upstream: upstream, Durable: true, Lease: 6 * time.Second})
	p := prometheus.StartPrometheus(t, c.Gateways, prometheus.Classic, prometheus.Hasten(t, "rules.yaml"), prometheus.Hasten(t, "alerts.yaml"))
	began := time.Now()
	for i, clients := range []int{63, 18, 9} {
		cluster.StartLoad(t, c.Gateways[i:i+1], cluster.LoadOptions{Clients: clients})
	}
	d := &dashboard{chrome: chrome, server: serveDashboard(t, p, script), began: began}

	time.Sleep(12 * time.Second) // what is drawn is a stretch of time
	calm := d.drawUntil(t, "calm", "Gateways", "ready3", "missing0")
	calm.says("Firing alerts", "alerts0")
	calm.says("What is wrong", "nothing")

	if err := c.Gateways[2].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	killed := d.drawUntil(t, "killed", "What is wrong", "KgateGatewayDown "+c.Gateways[2].Admin)
	killed.says("Gateways", "ready2", "missing1")
	for _, want := range []string{c.Gateways[2].Admin + " down", "Gateway suspended"} {
		if events := eval[string](killed.tab, "document.body.dataset.events"); !strings.Contains(events, want) {
			t.Errorf("no mark says %q: %q", want, events)
		}
	}

	c.Restart(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	back := d.drawUntil(t, "back", "Gateways", "ready3", "missing0")
	back.hasData("Replica lag", "Bandwidth, against the rate") // there are no tickets, and there is no rate
}

// dashboardWidth is that of the page, in pixels.
const dashboardWidth = 1520

// bundle makes one script of the drawing and Grafana's components.
func bundle(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "draw.js")
	cmd := exec.CommandContext(t.Context(), "grafana/node_modules/.bin/esbuild", "grafana/draw.jsx", "--bundle", "--minify", "--jsx=automatic",
		"--loader:.ttf=empty", `--define:process.env.NODE_ENV="production"`, "--outfile="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		skip(t, fmt.Sprintf("needs Grafana's components: npm ci --prefix test/browser/grafana (%v %s)", err, out))
	}
	return path
}

// serveDashboard serves a page that draws the dashboard, and the Prometheus that it asks.
func serveDashboard(t *testing.T, p *prometheus.Prometheus, script string) *httptest.Server {
	t.Helper()
	to, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = p.Transport()
	mux.Handle("/api/", proxy)
	mux.HandleFunc("/public/fonts/", func(http.ResponseWriter, *http.Request) {}) // the browser's own will do
	mux.Handle("/public/", http.StripPrefix("/public/", http.FileServer(http.Dir("grafana/node_modules/@grafana/ui/dist/public"))))
	mux.HandleFunc("/kgate.json", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "../../configs/grafana/dashboards/kgate.json")
	})
	mux.Handle("/draw/", http.StripPrefix("/draw/", http.FileServer(http.Dir(filepath.Dir(script)))))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="draw/draw.css"><body><div id="root"></div><script src="draw/draw.js"></script>`)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// dashboard is drawn again and again.
type dashboard struct {
	chrome context.Context
	server *httptest.Server
	began  time.Time
	page   *tab // nil: not drawn yet
}

// drawn is the dashboard at one moment.
type drawn struct {
	*tab
	moment string
}

// draw draws the dashboard as it is now, from the beginning of the run on.
func (d *dashboard) draw(t *testing.T, moment string) drawn {
	t.Helper()
	end := time.Now()
	address := fmt.Sprintf("%s/?job=kgate&pool=%s&scrape=0.25&step=0.5&end=%d&span=%d", d.server.URL, cluster.PoolName, end.Unix(), int(end.Sub(d.began).Seconds()))
	if d.page == nil {
		d.page = open(d.chrome, t, address, true)
		d.page.look(dashboardWidth, "dark")
	} else {
		run(d.page, chromedp.Navigate(address))
	}
	page := d.page
	page.await("the dashboard is drawn", `document.body.dataset.drawn`)
	return drawn{page, moment}
}

// drawUntil draws until a panel says what it has to.
func (d *dashboard) drawUntil(t *testing.T, moment, panel string, want ...string) drawn {
	t.Helper()
	for until := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		now := d.draw(t, moment)
		if len(now.lacks(panel, want)) == 0 || time.Now().After(until) {
			now.says(panel, want...)
			d.page.shootParts("dashboard-"+moment, ".dashboard-row")
			return now
		}
	}
}

// says checks what is written in a panel.
func (d drawn) says(panel string, want ...string) {
	d.t.Helper()
	if lacks := d.lacks(panel, want); len(lacks) > 0 {
		d.t.Errorf("%s: %q says %q, not %q", d.moment, panel, d.text(panel), lacks)
	}
}

// lacks returns what is not written in a panel.
func (d drawn) lacks(panel string, want []string) []string {
	d.t.Helper()
	text := d.text(panel)
	return slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.Contains(text, w) })
}

// text is what is written in a panel, with the spaces that a reader sees.
func (d drawn) text(panel string) string {
	d.t.Helper()
	return strings.Join(strings.Fields(eval[string](d.tab, fmt.Sprintf(`document.querySelector('[data-panel=%q]').textContent`, panel))), " ")
}

// hasData complains of panels that have no data, but those named.
func (d drawn) hasData(but ...string) {
	d.t.Helper()
	for _, panel := range eval[[]string](d.tab, `[...document.querySelectorAll(".empty")].map((e) => e.closest("[data-panel]").dataset.panel)`) {
		if !slices.Contains(but, panel) {
			d.t.Errorf("%s: %q has no data", d.moment, panel)
		}
	}
}
