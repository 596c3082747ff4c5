package browser

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kgate/kgate/internal/timing"
	"github.com/kgate/kgate/test/cluster"
)

const (
	k = 4

	ready   = `document.querySelectorAll("tr[data-gateway].ok").length`
	used    = `document.querySelectorAll(".slots .used").length`
	waiting = `[...document.querySelectorAll("[data-cancel]")].map((b) => b.closest("tr").querySelector(".who").textContent).join("\n")`
)

// TestStatusPage goes through a bad evening, as its page shows it.
func TestStatusPage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real gateways and a browser")
	}
	chrome := browser(t)
	upstream, answer := patientUpstream(t)
	// A browser at work beside them must not cost the gateways their leases.
	c := cluster.Start(t, cluster.Options{K: k, Upstream: upstream, Lease: 6 * time.Second})
	page := open(chrome, t, "http://"+c.Gateways[0].Admin+"/", true)
	page.look(1280, "light")
	page.await("three gateways are ready", ready+" === 3")
	page.await("all slots are free", used+" === 0")
	begun := time.Now()
	for range 5 {
		<-ask(t, c.Gateways[0], "/quick").done
	}

	slotsFill(t, c, page)
	clientsComeAndGo(t, c, page)
	t.Run("accessible", func(t *testing.T) { accessible(t, page) })
	t.Run("without script", func(t *testing.T) { withoutScript(t, c, open(chrome, t, "http://"+c.Gateways[1].Admin+"/", false)) })

	page.await("the spread of more than one moment is drawn",
		`document.querySelector(".spark .line").getTotalLength() > 1 && document.querySelector(".spark .line").getBBox().width > 1`)
	t.Logf("the spread is drawn %.1f s after the first admission", time.Since(begun).Seconds())
	pictures(page)
	gatewayDies(t, c, page)
	answer()
	page.await("the rest is served", used+" === 0 && "+waiting+` === ""`)
	ownGatewayDies(t, c, page)
}

func slotsFill(t *testing.T, c *cluster.Cluster, page *tab) {
	t.Helper()
	for i := range k {
		ask(t, c.Gateways[i%3], fmt.Sprintf("/files/%d.iso", i+1))
		if i%2 == 1 {
			page.await(fmt.Sprintf("%d slots are in use", i+1), fmt.Sprintf("%s === %d", used, i+1))
		}
	}
	page.await("who holds them is listed", `document.body.innerText.includes("/files/4.iso")`)
}

// clientsComeAndGo has clients wait that leave by themselves, or are sent away.
func clientsComeAndGo(t *testing.T, c *cluster.Cluster, page *tab) {
	t.Helper()
	leaves := ask(t, c.Gateways[1], "/leaves?token=secret")
	page.await("a client appears in the line", waiting+`.includes("GET /leaves")`)
	if strings.Contains(eval[string](page, "document.documentElement.outerHTML"), "secret") {
		t.Error("the page shows the query of a request")
	}
	stays := ask(t, c.Gateways[2], "/stays")
	page.await("another comes behind it", waiting+`.includes("GET /stays")`)
	leaves.leave()
	page.await("the first has left", "!"+waiting+`.includes("GET /leaves")`)

	// By keyboard: what has the focus keeps it while the page goes on changing.
	run(page, chromedp.Focus(chromedp.CSS("[data-cancel]")))
	before := eval[string](page, `document.querySelector("header .facts").textContent`)
	page.await("the page goes on", fmt.Sprintf(`document.querySelector("header .facts").textContent !== %q`, before))
	if !eval[bool](page, `document.activeElement.matches("[data-cancel]")`) {
		t.Error("the focus is lost when the page changes")
	}
	run(page, chromedp.KeyEvent(kb.Enter))
	page.await("it asks whether that is meant", `document.getElementById("ask").open`)
	run(page, chromedp.Click(chromedp.CSS("#ask-yes")))
	select {
	case got := <-stays.done:
		if got != "503 cancelled" {
			t.Errorf("who was sent away got: %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nobody was sent away")
	}
	page.await("nobody waits", waiting+` === ""`)
	for i := range 3 {
		ask(t, c.Gateways[i], fmt.Sprintf("/files/waits-%d.iso", i+1))
	}
	page.await("three wait", `document.querySelectorAll("[data-cancel]").length === 3`)
}

// withoutScript: the page is complete, and reloads itself.
func withoutScript(t *testing.T, c *cluster.Cluster, page *tab) {
	text := run(page, chromedp.Text(chromedp.CSS("body")))
	for _, g := range c.Gateways {
		if !strings.Contains(text, g.Name) {
			t.Errorf("without script %s is missing", g.Name)
		}
	}
	for _, want := range []string{"of 4 slots in use", "GET /files/waits-1.iso", "Reloads every 5 seconds."} {
		if !strings.Contains(text, want) {
			t.Errorf("without script %q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "×") {
		t.Error("there is a button that does nothing")
	}
	if every := eval[string](page, `document.querySelector("noscript meta[http-equiv=refresh]").content`); every != "5" {
		t.Errorf("without script the page is reloaded every %q", every)
	}
	page.shoot("without-script")
}

// pictures are for people: each look is kept.
func pictures(page *tab) {
	for _, look := range []struct {
		name   string
		width  int64
		scheme string
	}{{"dark", 1280, "dark"}, {"phone", 360, "light"}, {"tablet", 768, "light"}, {"phone-dark", 360, "dark"}, {"light", 1280, "light"}} {
		page.look(look.width, look.scheme)
		page.shoot(look.name)
		if over := eval[float64](page, `Math.max(...[...document.querySelectorAll("body *")].map((e) => e.getBoundingClientRect().right)) - innerWidth`); over > 0 {
			page.t.Errorf("%s: the page is %.0f pixels too wide", look.name, over)
		}
	}
}

// gatewayDies: the page says so before anybody has time to wonder.
func gatewayDies(t *testing.T, c *cluster.Cluster, page *tab) {
	t.Helper()
	killed := time.Now()
	if err := c.Gateways[2].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	name := c.Gateways[2].Name
	page.await("the killed gateway is marked", fmt.Sprintf(`document.querySelectorAll('tr[data-gateway=%[1]q].bad, g[data-gateway=%[1]q].bad').length === 2`, name))
	timing.Within(t, "the killed gateway is marked", time.Since(killed), 3*time.Second)
	red := eval[string](page, fmt.Sprintf(`getComputedStyle(document.querySelector('tr[data-gateway=%q] .state')).color`, name))
	if good := eval[string](page, `getComputedStyle(document.querySelector('tr.ok .state')).color`); red == good {
		t.Errorf("it has the colour of the others, %s", red)
	}
	page.await("it is said in words", fmt.Sprintf(`document.querySelector("#news")?.textContent.includes(%q)`, name))
	page.shoot("killed")
	page.await("it stays in the picture when its lease has run out", fmt.Sprintf(`document.querySelector('tr[data-gateway=%q] .state')?.textContent === "lost"`, name))
}

// ownGatewayDies: a page that is no longer true says so.
func ownGatewayDies(t *testing.T, c *cluster.Cluster, page *tab) {
	t.Helper()
	page.mu.Lock()
	page.failing = true
	page.mu.Unlock()
	if err := c.Gateways[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	page.await("the page says that it is old", `document.getElementById("feed").matches(".lost")`)
}

// accessible asks axe-core.
func accessible(t *testing.T, page *tab) {
	const file = "node_modules/axe-core/axe.min.js"
	axe, err := os.ReadFile(file)
	if err != nil {
		skip(t, "needs axe-core: npm ci --prefix test/browser")
	}
	run(page, chromedp.Evaluate[chromedp.Void](string(axe)))
	for _, look := range []struct {
		width  int64
		scheme string
	}{{1280, "light"}, {1280, "dark"}, {360, "light"}} {
		page.look(look.width, look.scheme)
		found := run(page, chromedp.Evaluate[[]string](`axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) =>
			v.impact + ": " + v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" ").slice(0, 400)))`, chromedp.EvalAwaitPromise))
		for _, f := range found {
			t.Errorf("%d pixels, %s: %s", look.width, look.scheme, f)
		}
	}
	page.look(1280, "light")
}
