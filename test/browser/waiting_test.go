package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/test/cluster"
)

// place is what the waiting page says.
const place = `document.querySelector("[data-live] strong")?.textContent`

// turns is an upstream with one slot that answers a request when the test says so.
type turns struct {
	proceed chan struct{}

	mu      sync.Mutex
	order   []string
	cookies []string
}

func (u *turns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.order = append(u.order, r.URL.Path)
	u.cookies = append(u.cookies, r.Header["Cookie"]...)
	u.mu.Unlock()
	select {
	case <-u.proceed:
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "text/html")
	_, _ = fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><link rel="icon" href="data:,"><title>served</title><h1 id=served>%s</h1>`, r.URL.Path)
}

func (u *turns) seen() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.order)
}

// awaitSeen waits until so many requests have come.
func (u *turns) awaitSeen(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cluster.Await(ctx, func() error {
		if got := u.seen(); len(got) < n {
			return fmt.Errorf("the upstream has seen %v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestWaitingPage: browsers that wait by the page are served in their order, between
// clients that wait on their connections, over three gateways. The upstream judges.
func TestWaitingPage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real gateways and a browser")
	}
	chrome := browser(t)
	u := &turns{proceed: make(chan struct{})}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(u.proceed) })
	may, mayNot, anyone, answer := pagesOfElsewhere(t)
	c := cluster.Start(t, cluster.Options{
		K: 1, Upstream: s.URL, Lease: 6 * time.Second,
		Pools: []cluster.Pool{{Name: "web", K: 1, Upstream: s.URL, Settings: "queue: {timeout: 10m, page: {enabled: true, keep: 20s}}"}, anyone},
	})
	t.Run("tickets from pages of elsewhere", func(t *testing.T) {
		ticketsFromPages(t, func(page string) *tab { return open(chrome, t, page, true) }, may, mayNot, answer, c.Gateways)
	})
	visit := func(i int, path string, script bool) *tab {
		page := open(chrome, t, "http://"+c.Gateways[i].HTTP+path, script)
		page.look(360, "light")
		return page
	}
	first := ask(t, c.Gateways[0], "/web/1")
	u.awaitSeen(t, 1)
	second := visit(0, "/web/2", true)
	second.await("the first one in line", place+` === "1"`)
	third := ask(t, c.Gateways[1], "/web/3")
	awaitLine(t, c, 2)
	fourth := visit(2, "/web/4", false)
	fourth.await("a page without script is third", place+` === "3"`)
	fifth := ask(t, c.Gateways[0], "/web/5")
	awaitLine(t, c, 4)
	gone := visit(1, "/web/gone", true)
	gone.await("one that will leave is fifth", place+` === "5"`)
	sixth := visit(1, "/web/6", true)
	sixth.await("the last one is sixth", place+` === "6"`)

	t.Run("looks", func(t *testing.T) { waitingLooks(t, sixth) })
	t.Run("comes back", func(t *testing.T) { comesBack(t, c, second) })
	closed := time.Now()
	gone.leave()

	proceed := func(n int) {
		t.Helper()
		select {
		case u.proceed <- struct{}{}:
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody is at the upstream; it has seen %v", u.seen())
		}
		u.awaitSeen(t, n)
	}
	served := func(page *tab, path string) {
		t.Helper()
		page.await(path+" is served", fmt.Sprintf(`document.querySelector("#served")?.textContent === %q`, path))
	}
	answered := func(c *client) {
		t.Helper()
		if got := <-c.done; got != "200 " {
			t.Errorf("a client got %s", got)
		}
	}
	proceed(2)
	answered(first)
	proceed(3)
	served(second, "/web/2")
	fourth.await("without script, too, it moves up", place+` === "1"`)
	sixth.await("all move up", place+` === "4" || `+place+` === "3"`)
	proceed(4)
	answered(third)
	proceed(5)
	served(fourth, "/web/4")
	proceed(6)
	answered(fifth)
	t.Logf("the place of the closed page was given up at most %.1f s after it", time.Since(closed).Seconds())
	proceedLast := func() { u.proceed <- struct{}{} }
	proceedLast()
	served(sixth, "/web/6")
	want := []string{"/web/1", "/web/2", "/web/3", "/web/4", "/web/5", "/web/6"}
	if got := u.seen(); !slices.Equal(got, want) {
		t.Errorf("the upstream saw %v, want %v", got, want)
	}
	if len(u.cookies) > 0 {
		t.Errorf("the upstream saw the cookies %q", u.cookies)
	}
}

// comesBack: a place is kept by a reload, by another window, and on the way back.
func comesBack(t *testing.T, c *cluster.Cluster, page *tab) {
	at := eval[string](page, "location.href")
	run(page, chromedp.Reload())
	page.await("a reload keeps the place", place+` === "1"`)
	run(page, chromedp.Navigate("about:blank"))
	run(page, chromedp.NavigateBack())
	page.await("so does the way back", place+` === "1"`)
	awaitLine(t, c, 6)
	if got := eval[string](page, "location.href"); got != at {
		t.Errorf("it is at %s", got)
	}
	if got := eval[string](page, "document.cookie"); got != "" {
		t.Errorf("scripts can read %q", got)
	}
}

// waitingLooks: on a phone, in the dark, and for those who hear the page.
func waitingLooks(t *testing.T, page *tab) {
	for _, scheme := range []string{"light", "dark"} {
		page.look(360, scheme)
		page.shoot("waiting-" + scheme)
		if over := eval[float64](page, `Math.max(...[...document.querySelectorAll("body *")].map((e) => e.getBoundingClientRect().right)) - innerWidth`); over > 0 {
			t.Errorf("%s: the page is %.0f pixels too wide", scheme, over)
		}
	}
	accessible(t, page)
	page.look(360, "light")
}

// awaitLine waits until so many are in the line of the pool web.
func awaitLine(t *testing.T, c *cluster.Cluster, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := cluster.Await(ctx, func() error {
		waiting := 0
		for _, g := range c.Gateways {
			s, err := g.Status(ctx)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(s.Pools, func(p admin.Pool) bool { return p.Name == "web" })
			waiting += s.Pools[i].Waiting
		}
		if waiting != n {
			return fmt.Errorf("%d wait, not %d", waiting, n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
