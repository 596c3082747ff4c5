package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	dir    string             // with the files that examples name
	addrs  map[string]string  // where it listens, other than http
	seen   chan *http.Request // by the upstream
}

// exampleRuns tests each example.
var exampleRuns = map[string]func(*example){
	"https-only.yaml": func(e *example) {
		res, _ := e.get("/a", "Host", "files.example.com")
		if res.StatusCode != 308 || res.Header.Get("Location") != "https://files.example.com/a" {
			e.Errorf("in the clear: %v %v", res.Status, res.Header)
		}
		res, _ = e.ask("GET", "https://"+e.addrs["https"]+"/")
		if res.StatusCode != 200 || res.Header.Get("Strict-Transport-Security") != "max-age=86400" {
			e.Errorf("over TLS: %v %v", res.Status, res.Header)
		}
	},
	"certificates.yaml": func(e *example) {
		for name, file := range map[string]string{"files": "files.pem", "other": "site.pem"} {
			conn, err := tls.Dial("tcp", e.addrs["https"], &tls.Config{InsecureSkipVerify: true, ServerName: name})
			if err != nil {
				e.Fatal(err)
			}
			if got := conn.ConnectionState().PeerCertificates[0]; !got.Equal(certificate(e.T, filepath.Join(e.dir, file))) {
				e.Errorf("%s got the certificate of %v", name, got.DNSNames)
			}
			_ = conn.Close()
		}
	},
	"access.yaml": func(e *example) {
		for _, c := range []struct {
			method, from string
			status       int
		}{
			{"GET", "", 200}, {"GET", "10.2.0.1", 200}, {"GET", "10.6.6.6", 403}, {"GET", "192.0.2.1", 403}, {"PUT", "10.2.0.1", 403}, {"PUT", "10.1.0.1", 200},
		} {
			if res, _ := e.ask(c.method, "http://"+e.server.clientAddr.String()+"/", "X-Forwarded-For", c.from); res.StatusCode != c.status {
				e.Errorf("%s from %q: %v", c.method, c.from, res.Status)
			}
		}
	},
	"error-pages.yaml": func(e *example) {
		res, body := e.get("/", "Accept", "text/html", "X-Request-ID", "mine")
		if res.StatusCode != 404 || body != "error.txt: 404 Not Found mine" || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			e.Errorf("a browser got %v %q", res.Status, body)
		}
		if res, body := e.get("/", "Accept", "application/json"); !strings.Contains(body, `"status":404`) {
			e.Errorf("a program got %v %q", res.Status, body)
		}
		if _, body := e.get("/files/a", "Accept", "text/html", "X-Request-ID", "mine", "Kgate-Ticket", "none"); body != "files.html: 409 Conflict mine" {
			e.Errorf("a browser got %q of the route", body)
		}
		e.write("error.txt", "anew")
		next := *e.server.cfg
		if err := e.server.follow(&next); err != nil {
			e.Fatal(err)
		}
		if _, body := e.get("/", "Accept", "text/html"); body != "anew" {
			e.Errorf("after a reload: %q", body)
		}
	},
	"cors.yaml": func(e *example) {
		at := "http://" + e.server.clientAddr.String()
		res, _ := e.ask("OPTIONS", at+"/files/a", "Origin", "https://a.example.org", "Access-Control-Request-Method", "PUT")
		if h := res.Header; res.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "https://a.example.org" || h.Get("Access-Control-Allow-Methods") != "PUT" || h.Get("Access-Control-Max-Age") != "600" {
			e.Errorf("before a request: %v %v", res.Status, h)
		}
		res, _ = e.get("/other", "Origin", "https://elsewhere.test")
		if h := res.Header; res.StatusCode != 403 || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "Retry-After") {
			e.Errorf("refused: %v %v", res.Status, h)
		}
		if len(e.seen) > 0 {
			e.Error("the upstream was asked")
		}
	},
	"tcp-access.yaml": func(e *example) {
		conn, err := net.Dial("tcp", e.addrs["tcp[0]"])
		if err == nil {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = conn.Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			e.Errorf("this machine is not of that network, but: %v", err)
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

// write writes a file that the example names.
func (e *example) write(name, text string) {
	e.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o600); err != nil {
		e.Fatal(err)
	}
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
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
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
	e := &example{T: t, dir: t.TempDir(), addrs: make(map[string]string), seen: make(chan *http.Request, 100)}
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
	if cfg.Listen.TLS.Enabled() {
		mustKeygen(t, e.dir, "--ca")
		mustKeygen(t, e.dir, "--peer", "site", "--peer", "files")
	}
	// The gateway listens on free ports in place of the example's addresses.
	sockets := make(map[string][]net.Listener)
	free := func(key string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		e.addrs[key], sockets[key] = l.Addr().String(), []net.Listener{l}
	}
	if cfg.Listen.HTTPS != "" {
		free("https")
	}
	for i := range cfg.Listen.TCP {
		free(fmt.Sprintf("tcp[%d]", i))
	}
	e.server = startSingleOn(t, upstream.URL, sockets, func(c *config.Config) {
		listen, name := c.Listen, c.Node.Name
		*c = *cfg
		c.Node.Name = name
		c.Listen.HTTP, c.Listen.Admin, c.Listen.Peer = listen.HTTP, listen.Admin, listen.Peer
		file := func(name *string) { *name = filepath.Join(e.dir, *name) }
		if t := &c.Listen.TLS; t.Enabled() {
			file(&t.Cert)
			file(&t.Key)
			for i := range t.Certificates {
				file(&t.Certificates[i].Cert)
				file(&t.Certificates[i].Key)
			}
		}
		pages := [][]config.ErrorPage{c.ErrorPages}
		for _, r := range c.Routes {
			pages = append(pages, r.ErrorPages)
		}
		for _, p := range slices.Concat(pages...) {
			e.write(p.File, p.File+": {{.Status}} {{.Title}} {{.RequestID}}")
		}
		for _, list := range pages {
			for i := range list {
				file(&list[i].File)
			}
		}
		for i := range c.Pools {
			for j, u := range c.Pools[i].Upstreams {
				if u.Scheme == "http" {
					c.Pools[i].Upstreams[j] = at
				}
			}
		}
	})
	run(e)
}
