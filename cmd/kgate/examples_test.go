package main

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/config"
)

// pageExample matches the examples of docs/configuration.md: whole files, each with its
// name in the first line.
var pageExample = regexp.MustCompile("(?s)```yaml\n# ([a-z0-9-]+\\.yaml): .*?```")

// example is a gateway that runs as an example says, but on free ports, in front of an
// upstream of the test.
type example struct {
	*testing.T
	server *server
	seen   chan *http.Request // by the upstream
}

// exampleRuns says of each example what it does.
var exampleRuns = map[string]func(*example){
	"request-id.yaml": func(e *example) {
		res, _ := e.get("/", "X-Request-ID", "mine")
		if got := (<-e.seen).Header.Get("X-Request-ID"); got != "mine" || res.Header.Get("X-Request-ID") != "mine" {
			e.Errorf("the upstream got %q, the client %v", got, res.Header)
		}
		res, _ = e.get("/")
		if got := (<-e.seen).Header.Get("X-Request-ID"); len(got) != 36 || res.Header.Get("X-Request-ID") != got {
			e.Errorf("the upstream got %q, the client %v", got, res.Header)
		}
	},
	"headers.yaml": func(e *example) {
		res, _ := e.get("/files/a", "Cookie", "a", "X-Real-IP", "203.0.113.9")
		r := <-e.seen
		if r.URL.Path != "/a" || r.Header.Get("Cookie") != "" || r.Header.Get("X-Real-IP") != "127.0.0.1" || r.Header.Get("X-Forwarded-Prefix") != "/files" {
			e.Errorf("the upstream got %v %v", r.URL, r.Header)
		}
		if h := res.Header; h.Get("Server") != "" || h.Get("X-Frame-Options") != "DENY" || h.Get("X-Served-By") != e.server.cfg.Node.Name+", pool files" {
			e.Errorf("the client got %v", h)
		}
	},
}

// get asks the gateway, in the clear, over a connection of its own, and follows nothing.
func (e *example) get(path string, header ...string) (*http.Response, string) {
	e.Helper()
	return e.ask(http.MethodGet, "http://"+e.server.clientAddr.String()+path, header...)
}

func (e *example) ask(method, at string, header ...string) (*http.Response, string) {
	e.Helper()
	req, err := http.NewRequestWithContext(e.Context(), method, at, nil)
	if err != nil {
		e.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		e.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		e.Fatal(err)
	}
	return res, string(body)
}

// TestPageExamples runs the examples of docs/configuration.md.
func TestPageExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range pageExample.FindAllSubmatch(page, -1) {
		name, text := string(m[1]), strings.TrimSuffix(strings.TrimPrefix(string(m[0]), "```yaml\n"), "```")
		names = append(names, name)
		if exampleRuns[name] == nil {
			t.Errorf("nobody says what %s does", name)
			continue
		}
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) { runExample(t, name, text, exampleRuns[name]) })
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(exampleRuns)); !slices.Equal(names, want) {
		t.Errorf("the page has %v, want %v", names, want)
	}
}

func runExample(t *testing.T, name, text string, run func(*example)) {
	e := &example{T: t, seen: make(chan *http.Request, 100)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.seen <- r.Clone(t.Context())
		w.Header().Set("Server", "up")
		_, _ = io.WriteString(w, "from the upstream")
	}))
	t.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e.server = startSingle(t, upstream.URL, func(c *config.Config) {
		listen := c.Listen
		name := c.Node.Name
		*c = *cfg
		c.Node.Name = name
		c.Listen.HTTP, c.Listen.Admin, c.Listen.Peer, c.Listen.Gossip = listen.HTTP, listen.Admin, listen.Peer, listen.Gossip
		for i := range c.Pools {
			for j := range c.Pools[i].Upstreams {
				c.Pools[i].Upstreams[j] = at
			}
		}
	})
	run(e)
}
