package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

func mustPage(t *testing.T, statuses, contentType, text string) *ErrorPage {
	t.Helper()
	p, err := NewErrorPage(strings.Fields(statuses), contentType, text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	html        = "text/html; charset=utf-8"
	likeBrowser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
)

// TestErrorPages: a person gets the page, a program the problem document, and an answer of
// the upstream stays as it is.
func TestErrorPages(t *testing.T) {
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }), func(c *Config) {
		c.Edge.RequestIDHeader = "X-Request-ID"
		c.Routes[0].Match.PathPrefix = "/p"
		c.Edge.ErrorPages = []*ErrorPage{
			mustPage(t, "4xx 5xx", "text/plain", "any {{.Status}} {{.Title}}"),
			mustPage(t, "503 429", html, `<p title="{{.Detail}}">{{.Status}} {{.RequestID}}{{if .RetryAfter}} again in {{.RetryAfter}} s{{end}} {{.Pool}} {{.Reason}} {{.Position}}</p>`),
		}
	})
	const line = "503 Service Unavailable: "
	page := `<p title="` + admission.Timeout.Detail() + `">503 mine again in 9 s p timeout 7</p>`
	for _, c := range []struct {
		method, path, accept, contentType, body string
		status                                  int
	}{
		{"GET", "/p", likeBrowser, html, page, 503},
		{"HEAD", "/p", likeBrowser, html, "", 503},
		{"GET", "/p", "text/html", html, page, 503},
		{"GET", "/p", "*/*", "application/problem+json", "{", 503},
		{"GET", "/p", "", "application/problem+json", "{", 503},
		{"GET", "/p", "application/json", "application/problem+json", "{", 503},
		{"GET", "/p", "application/json, text/html", "application/problem+json", "{", 503},
		{"GET", "/p", "text/plain", "text/plain; charset=utf-8", line, 503},
		{"GET", "/p", "image/*", "text/plain; charset=utf-8", line, 503},
		{"GET", "/other", likeBrowser, "text/plain", "any 404 Not Found", 404},
		{"GET", "/other", "*/*", "application/problem+json", "{", 404},
	} {
		g.sem.refusal = &admission.Refusal{Reason: admission.Timeout, RetryAfter: 9 * time.Second, Position: 7}
		req := g.request(c.method, c.path, "X-Request-ID", "mine")
		if c.accept != "" {
			req.Header.Set("Accept", c.accept)
		}
		res := g.do(req)
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if h := res.Header; res.StatusCode != c.status || h.Get("Content-Type") != c.contentType || !strings.HasPrefix(string(body), c.body) ||
			h.Get("Cache-Control") != "no-store" || c.method == "HEAD" && h.Get("Content-Length") == "0" {
			t.Errorf("%s %s, %q: got %v %v %s", c.method, c.path, c.accept, res.Status, h, body)
		}
	}
	g.sem.refusal = nil
	res := g.do(g.request("GET", "/p", "Accept", likeBrowser))
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 503 || len(body) != 0 {
		t.Errorf("the upstream's own: %v %s", res.Status, body)
	}
}

// TestErrorPageEscapes: nothing that a client says is markup.
func TestErrorPageEscapes(t *testing.T) {
	p := mustPage(t, "4xx", html, "<p>{{.Detail}}</p><script>let a = {{.Detail}}</script>")
	out, err := p.render(problem{Status: 400, Detail: `</p><script>alert("x")</script>`})
	if err != nil || strings.Contains(string(out), "<script>alert") || strings.Contains(string(out), `alert("x")`) {
		t.Errorf("%s, %v", out, err)
	}
}

// TestErrorPageEscapesXML: the same holds for other markup in which browsers run scripts.
func TestErrorPageEscapesXML(t *testing.T) {
	for _, contentType := range []string{"application/xhtml+xml", "image/svg+xml", "text/xml; charset=utf-8"} {
		p := mustPage(t, "4xx", contentType, `<?xml version="1.0"?><p>{{.Detail}}</p>`)
		out, err := p.render(problem{Status: 400, Detail: "<script>"})
		if want := `<?xml version="1.0"?><p>&lt;script&gt;</p>`; err != nil || string(out) != want {
			t.Errorf("%s: %s, %v", contentType, out, err)
		}
	}
}

func TestBadErrorPages(t *testing.T) {
	for text, contentType := range map[string]string{
		"{{.Nothing}}": html, "{{if}}": html, "{{.Status": "text/plain", "{{index .Detail 100}}": "text/plain",
		"no type": "", "two lines": "text/plain\r\nX: y", "<script>{{if .Pool}}`{{end}}</script>": html,
	} {
		if p, err := NewErrorPage([]string{"503"}, contentType, text); err == nil {
			t.Errorf("%q as %q is taken: %+v", text, contentType, p)
		}
	}
}

// TestErrorPagesOfRoutes: a route's own page comes before one of the gateway's for the same
// status, and only there.
func TestErrorPagesOfRoutes(t *testing.T) {
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		c.Edge.ErrorPages = []*ErrorPage{mustPage(t, "503", html, "busy"), mustPage(t, "4xx", html, "none")}
		c.Routes = []Route{
			{Pool: "p", Match: Match{PathPrefix: "/own"}, ErrorPages: []*ErrorPage{mustPage(t, "5xx", html, "own")}},
			{Pool: "p", Match: Match{PathPrefix: "/p", Methods: []string{"GET"}}},
		}
	})
	g.sem.refusal = &admission.Refusal{Reason: admission.Timeout}
	for path, want := range map[string]string{"/own": "own", "/p": "busy", "/other": "none"} {
		res := g.do(g.request("GET", path, "Accept", likeBrowser))
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %s %q, want %q", path, res.Status, body, want)
		}
	}
}
