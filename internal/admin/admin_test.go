package admin

import (
	"encoding/json"
	"flag"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	_ "net/http/pprof" // what Config.Profiles is in a program that serves them
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fixedSource answers always the same.
type fixedSource struct {
	status  Status
	entries map[string]Entries
	ready   bool
	reason  string
}

func (s *fixedSource) Report(_ string, entries int) Report {
	r := exampleReport(s.status)
	for pool, e := range s.entries {
		r.Entries[pool] = Entries{longest(slices.Clone(e.Waiting), entries), longest(slices.Clone(e.Holding), entries)}
	}
	return r
}
func (s *fixedSource) Ready() (bool, string) { return s.ready, s.reason }

func newTestHandler(t *testing.T, s Source) http.Handler {
	t.Helper()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, "kgate_example_total 0\n")
	})
	h := NewHandler(Config{Source: s, Lines: &someLines{}, Peers: examplePeers{}, Metrics: metrics, Profiles: http.DefaultServeMux})
	return h
}

// request describes one request to the handler, from this machine unless it
// says otherwise.
type request struct {
	method, path, host, remote, accept string
	header                             [2]string
	onNetwork                          bool // came in on an address that is not loopback
}

func (q request) to(t *testing.T, h http.Handler) answer {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(t.Context(), q.method, q.path, nil)
	r.Host, r.RemoteAddr = "127.0.0.1:9080", "127.0.0.1:40000"
	if q.host != "" {
		r.Host = q.host
	}
	if q.remote != "" {
		r.RemoteAddr = q.remote
	}
	if q.accept != "" {
		r.Header.Set("Accept", q.accept)
	}
	if q.header[0] != "" {
		r.Header.Set(q.header[0], q.header[1])
	}
	if q.onNetwork {
		r = r.WithContext(withLocalAddr(r, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9080}))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{status: w.Code, header: w.Header(), text: w.Body.String()}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
}

func TestAnswers(t *testing.T) {
	ready := &fixedSource{status: example(), ready: true}
	notReady := &fixedSource{status: example(), reason: "no view yet:\nwaiting for 2 more gateways"}
	for _, tc := range []struct {
		name   string
		source *fixedSource
		request
		status int
		kind   string // of content
		holds  string
	}{
		{"healthy", notReady, request{path: "/healthz"}, 200, "text/plain; charset=utf-8", "ok\n"},
		{"ready", ready, request{path: "/readyz"}, 200, "text/plain; charset=utf-8", "ready\n"},
		{"not ready", notReady, request{path: "/readyz"}, 503, "text/plain; charset=utf-8", "no view yet: waiting for 2 more gateways\n"},
		{"metrics", ready, request{path: "/metrics"}, 200, "text/plain; version=0.0.4", "kgate_example_total 0"},
		{"status", ready, request{path: "/api/v1/status"}, 200, "application/json", `"name": "gw-1"`},
		{"page", ready, request{path: "/"}, 200, "text/html; charset=utf-8", "<table"},
		{"line", ready, request{path: "/api/v1/line?pool=downloads"}, 200, "application/json", `"pool":"downloads"`},
		{"line of no pool", ready, request{path: "/api/v1/line"}, 400, "application/problem+json", "pool=NAME"},
		{"line of an unknown pool", ready, request{path: "/api/v1/line?pool=x"}, 404, "application/problem+json", "there is no pool"},
		{"line as text", ready, request{path: "/debug/line"}, 200, "text/plain; charset=utf-8", "pool downloads: 8 of 8 slots in use, 31 waiting"},
		{"line as text of an unknown pool", ready, request{path: "/debug/line?pool=x"}, 404, "text/plain", "there is no pool"},
		{"why", ready, request{path: "/api/v1/why"}, 400, "application/problem+json", "ticket=ID or with trace=ID"},
		{"why of both", ready, request{path: "/api/v1/why?ticket=a&trace=b"}, 400, "application/problem+json", "ticket=ID or with trace=ID"},
		{"why of no trace", ready, request{path: "/api/v1/why?trace=b"}, 404, "application/problem+json", "no request of trace"},
		{"why of no ticket", ready, request{path: "/api/v1/why?ticket=b"}, 404, "application/problem+json", "no such ticket"},
		{"API", ready, request{path: "/api/v1/openapi.json"}, 200, "application/json", `"openapi": "3.0.3"`},
		{"style", ready, request{path: "/assets/page.css"}, 200, "text/css; charset=utf-8", "color-scheme: light dark"},
		{"script", ready, request{path: "/assets/page.js"}, 200, "text/javascript; charset=utf-8", "EventSource"},
		{"icon", ready, request{path: "/assets/icon.svg"}, 200, "image/svg+xml", "<svg"},
		{"no asset", ready, request{path: "/assets/page.html"}, 404, "text/plain", "nothing at this path"},
		{"unknown path", ready, request{path: "/etc/passwd"}, 404, "text/plain; charset=utf-8", "/api/v1/status"},
		{"dots", ready, request{path: "/../../etc/passwd"}, 404, "text/plain", "nothing at this path"},
		{"slash", ready, request{path: "/healthz/"}, 404, "text/plain", "nothing at this path"},
		{"unknown path of the API", ready, request{path: "/api/v1/x"}, 404, "application/problem+json", `"status":404`},
		{"unknown path, JSON wanted", ready, request{path: "/x", accept: "application/json"}, 404, "application/problem+json", `"title":"Not Found"`},
		{"POST", ready, request{method: "POST", path: "/api/v1/status"}, 405, "application/problem+json", "only GET and HEAD"},
		{"DELETE of the page", ready, request{method: "DELETE", path: "/"}, 405, "text/plain", "only GET and HEAD"},
		{"TRACE", ready, request{method: "TRACE", path: "/healthz"}, 405, "text/plain", "only GET and HEAD"},
		{"profiles", ready, request{path: "/debug/pprof/"}, 200, "text/html", "goroutine"},
		{"a profile", ready, request{path: "/debug/pprof/goroutine?debug=1"}, 200, "text/plain", "goroutine profile"},
		{"unknown profile", ready, request{path: "/debug/pprof/nosuch"}, 404, "text/plain", "Unknown profile"},
		{"profiles from elsewhere", ready, request{path: "/debug/pprof/", remote: "10.0.0.9:1"}, 403, "text/plain", "own machine"},
		{"a profile from elsewhere", ready, request{path: "/debug/pprof/heap", remote: "10.0.0.9:1"}, 403, "text/plain", "own machine"},
		{"command line from elsewhere", ready, request{path: "/debug/pprof/cmdline", remote: "[fe80::1%eth0]:1"}, 403, "text/plain", "own machine"},
		{"profiles through a proxy", ready, request{path: "/debug/pprof/", header: [2]string{"X-Forwarded-For", "10.0.0.9"}}, 403, "text/plain", "own machine"},
		{"profiles for a page elsewhere", ready, request{path: "/debug/pprof/", header: [2]string{"Sec-Fetch-Site", "cross-site"}}, 403, "text/plain", "another origin"},
		{"profiles for a page next to it", ready, request{path: "/debug/pprof/", header: [2]string{"Sec-Fetch-Site", "same-site"}}, 403, "text/plain", "another origin"},
		{"profiles for an old browser's page", ready, request{path: "/debug/pprof/", header: [2]string{"Origin", "http://evil.example"}}, 403, "text/plain", "another origin"},
		{"profiles in the address bar", ready, request{path: "/debug/pprof/", header: [2]string{"Sec-Fetch-Site", "none"}}, 200, "text/html", "goroutine"},
		{"profiles from nowhere", ready, request{path: "/debug/pprof/", remote: "@"}, 403, "text/plain", "own machine"},
		{"profiles over IPv6", ready, request{path: "/debug/pprof/", remote: "[::1]:1"}, 200, "text/html", "goroutine"},
		{"rebound name", ready, request{path: "/", host: "evil.example.com:9080"}, 421, "text/plain", "localhost"},
		{"rebound name, API", ready, request{path: "/api/v1/status", host: "127.0.0.1.evil.example.com"}, 421, "application/problem+json", "localhost"},
		{"no name", ready, request{path: "/", host: ":9080"}, 421, "text/plain", "localhost"},
		{"localhost", ready, request{path: "/healthz", host: "LOCALHOST.:9080"}, 200, "text/plain", "ok"},
		{"IPv6 address", ready, request{path: "/healthz", host: "[::1]"}, 200, "text/plain", "ok"},
		{"name on the network", ready, request{path: "/healthz", host: "gw-1.example.com", onNetwork: true}, 200, "text/plain", "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := tc.to(t, newTestHandler(t, tc.source))
			if r.status != tc.status || !strings.HasPrefix(r.header.Get("Content-Type"), tc.kind) || !strings.Contains(r.text, tc.holds) {
				t.Errorf("%d, %s:\n%.500s\nwant %d, %s, %q", r.status, r.header.Get("Content-Type"), r.text, tc.status, tc.kind, tc.holds)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
				"Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
			} {
				if got := r.header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if csp := r.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") {
				t.Errorf("Content-Security-Policy: %q", csp)
			}
			if allow := r.header.Get("Allow"); (tc.status == 405) != (allow == "GET, HEAD") {
				t.Errorf("Allow: %q", allow)
			}
		})
	}
}

// TestStatusDocument pins the document down: its keys are a public interface.
func TestStatusDocument(t *testing.T) {
	for name, s := range map[string]Status{
		"status": example(),
		"alone": {
			Version: "1.2.3",
			Gateway: Gateway{Name: "gw-1", Reason: "no view yet"},
		},
	} {
		got := request{path: "/api/v1/status"}.to(t, newTestHandler(t, &fixedSource{status: s})).text
		checkGolden(t, "testdata/"+name+".json", got)
		var back Status
		if err := json.Unmarshal([]byte(got), &back); err != nil {
			t.Error(err)
		}
	}
}

func TestStatusThatCannotBeEncoded(t *testing.T) {
	s := example()
	s.Gateway.UptimeSeconds = math.NaN()
	r := request{path: "/api/v1/status"}.to(t, newTestHandler(t, &fixedSource{status: s}))
	if r.status != http.StatusInternalServerError || !strings.Contains(r.text, "cannot be shown") {
		t.Errorf("%d: %s", r.status, r.text)
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestFormats(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", .0125: "0.01 ms", 12.54: "13 ms", 2340: "2.3 s", 61_234: "61 s", 361_234: "6 min 1 s"} {
		if got := Millis(ms); got != want {
			t.Errorf("millis(%v) = %s, want %s", ms, got, want)
		}
	}
	for s, want := range map[float64]string{0: "0 s", 59.9: "59 s", 61: "1 min 1 s", 3661: "1 h 1 min", 93784.5: "1 d 2 h"} {
		if got := Uptime(s); got != want {
			t.Errorf("uptime(%v) = %s, want %s", s, got, want)
		}
	}
}
