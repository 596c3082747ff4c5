package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/admission"
)

// TestTarget: what the routes see of a request's target is what the upstream gets.
func TestTarget(t *testing.T) {
	up, seen := wireUpstream(t, wireOK)
	below := *up
	below.Path, below.RawPath = "/v1/x", "/v1%2Fx"
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		route := func(pool, prefix, strip string) Route {
			edits := HeaderEdits{Set: []Field{{"Route", prefix}}}
			return Route{Pool: pool, Match: Match{PathPrefix: prefix}, StripPrefix: strip, RequestHeaders: edits}
		}
		c.Pools = []Pool{{Name: "p", Upstreams: []*url.URL{up}}, {Name: "below", Upstreams: []*url.URL{&below}}}
		c.Routes = []Route{
			route("p", "/files/", ""), route("p", "/strip/", "/strip/"), route("p", "/free", "/free"), route("below", "/below/", ""), route("p", "/", ""),
		}
	})
	asked := askedAdmitter{g.sem, make(chan admission.Request, 1)}
	cfg := g.handler.current.Load().cfg
	cfg.Admitter = asked
	if err := g.handler.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	// Of those that are answered with 400 the last three fields are empty.
	for _, c := range []struct{ name, target, route, judged, sent string }{
		{"as it should be", "/files/a", "/files/", "/files/a", "/files/a"},
		{"an encoded letter", "/fil%65s/a", "/files/", "/files/a", "/fil%65s/a"},
		{"an encoded slash", "/files%2Fa%2fb", "/files/", "/files/a/b", "/files%2Fa%2fb"},
		{"an encoded slash beside a byte that has to be encoded", "/files/a%2Fb|c", "/files/", "/files/a/b|c", "/files/a%2Fb%7Cc"},
		{"encoded twice", "/files/%252e%252e/a", "/files/", "/files/%2e%2e/a", "/files/%252e%252e/a"},
		{"an encoded NUL", "/files/%00", "/files/", "/files/\x00", "/files/%00"},
		{"an encoded line break", "/files/%0d%0a", "/files/", "/files/\r\n", "/files/%0d%0a"},
		{"half an escape", "/files/%", "", "", ""},
		{"no hexadecimal digits", "/files/%zz", "", "", ""},
		{"UTF-8", "/files/\u00e9%2F", "/files/", "/files/\u00e9/", "/files/%C3%A9%2F"},
		{"no UTF-8", "/files/\xff", "/files/", "/files/\xff", "/files/%FF"},
		{"a number sign", "/files/a#b", "/files/", "/files/a#b", "/files/a%23b"},
		{"brackets", "/files/[a]", "/files/", "/files/[a]", "/files/[a]"},

		{"two slashes", "//files//a", "/files/", "//files//a", "//files//a"},
		{"a backslash", `/\files\a`, "/files/", `/\files\a`, "/%5Cfiles%5Ca"},
		{"an encoded backslash", "/files%5ca", "/files/", `/files\a`, "/files%5ca"},
		{"a parameter", "/files;x=y/a", "/files/", "/files;x=y/a", "/files;x=y/a"},
		{"an encoded parameter", "/files%3Bx/a", "/files/", "/files;x/a", "/files%3Bx/a"},
		{"a segment that is only a parameter", "/;x/files/a", "/files/", "/;x/files/a", "/;x/files/a"},
		{"a dot behind a name", "/files./a", "/", "/files./a", "/files./a"},
		{"a space behind a name", "/files%20/a", "/", "/files /a", "/files%20/a"},

		{"dots", "/free/../files/a", "", "", ""},
		{"one dot", "/files/.", "", "", ""},
		{"encoded dots", "/free/%2e%2E/files/a", "", "", ""},
		{"dots behind an encoded slash", "/free%2f..%2ffiles/a", "", "", ""},
		{"a parameter behind dots", "/free/..;/files/a", "", "", ""},
		{"an encoded parameter behind dots", "/free/..%3bx/files/a", "", "", ""},
		{"dots between backslashes", `/free\..\files/a`, "", "", ""},
		{"dots between encoded backslashes", "/free%5c..%5cfiles/a", "", "", ""},
		{"dots in a name", "/files/.../..a/b..", "/files/", "/files/.../..a/b..", "/files/.../..a/b.."},

		{"absolute form", "http://h/files/a?b", "/files/", "/files/a", "/files/a?b"},
		{"absolute form in capitals", "HTTPS://h/files/a", "/files/", "/files/a", "/files/a"},
		{"absolute form with a user", "http://u:p@h/files/a", "/files/", "/files/a", "/files/a"},
		{"absolute form without path", "http://h", "/", "/", "/"},
		{"absolute form with a query alone", "http://h?a", "/", "/", "/?a"},
		{"another scheme", "ftp://h/files/a", "", "", ""},
		{"an opaque URL", "x:http://h/files/a", "", "", ""},
		{"an opaque URL with dots", "x:../files/a", "", "", ""},
		{"an opaque URL of http", "http:files/a", "", "", ""},
		{"no path", "?a", "", "", ""},
		{"no slash", "files/a", "", "", ""},
		{"asterisk", "*", "", "", ""},

		{"a query of nothing", "/files/a?", "/files/", "/files/a", "/files/a?"},
		{"any query", "/files/a??b=%zz&c=\u00e9;#/../d", "/files/", "/files/a", "/files/a??b=%zz&c=\u00e9;#/../d"},

		{"stripped", "/strip/a%2Fb", "/strip/", "/strip/a/b", "/a%2Fb"},
		{"stripped, an encoded letter", "/str%69p/a%2Fb", "/strip/", "/strip/a/b", "/a%2Fb"},
		{"stripped, two slashes", "//strip//%2fx", "/strip/", "//strip///x", "/x"},
		{"stripped, a backslash", "/strip%5cx", "/strip/", `/strip\x`, "/x"},
		{"stripped, a parameter", "/strip;a=b/x;c", "/strip/", "/strip;a=b/x;c", "/x;c"},
		{"stripped, an encoded slash in front", "/free%2Fx%2F", "/free", "/free/x/", "/x%2F"},
		{"stripped, a backslash in front", `/free\x`, "/free", `/free\x`, "/%5Cx"},
		{"stripped, a parameter in front", "/free;a", "/free", "/free;a", "/;a"},
		{"stripped, nothing else", "/free", "/free", "/free", "/"},
		{"stripped, dots behind", "/free../x", "/free", "/free../x", "/free../x"},
		{"stripped, encoded dots behind", "/free%2e%2e%2fx", "/free", "/free../x", "/free%2e%2e%2fx"},
		{"stripped, a longer segment", "/freedom", "/free", "/freedom", "/freedom"},

		{"below a path", "/below/a%2Fb", "/below/", "/below/a/b", "/v1%2Fx/below/a%2Fb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := g.dial()
			conn.send("GET " + c.target + " HTTP/1.1\r\nHost: h\r\n\r\n")
			res := conn.response()
			if c.sent == "" {
				if res.StatusCode != http.StatusBadRequest || len(asked.asked)+len(seen) > 0 {
					t.Errorf("got %v; %d asked for a slot, %d were sent", res.Status, len(asked.asked), len(seen))
				}
				return
			}
			if res.StatusCode != http.StatusOK {
				t.Fatalf("got %v", res.Status)
			}
			judged, wire := (<-asked.asked).Info.Path, <-seen
			line, _, _ := strings.Cut(wire, "\r\n")
			if route := fields(wire, "Route")[0]; judged != c.judged || line != "GET "+c.sent+" HTTP/1.1" || route != "Route: "+c.route {
				t.Errorf("%q is judged, and the upstream got %q by %q; want %q, %q, %q", judged, line, route, c.judged, c.sent, c.route)
			}
		})
	}
}

// TestTargetInProgram: nor can a target be read in two ways that does not come as net/http
// reads it in HTTP/1.
func TestTargetInProgram(t *testing.T) {
	h := openHandler(t, mustURL(t, "http://127.0.0.1:1"))
	defer h.Close()
	for name, change := range map[string]func(r *http.Request){
		"a host in :path":     func(r *http.Request) { r.ProtoMajor, r.URL.Scheme, r.URL.Host = 2, "http", "other" },
		"a path without root": func(r *http.Request) { r.URL.Path = "files/a" },
	} {
		r := httptest.NewRequest("GET", "/files/a", http.NoBody)
		change(r)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d", name, w.Code)
		}
	}
}

// TestHostOfTarget: nor can the host.
func TestHostOfTarget(t *testing.T) {
	up, seen := wireUpstream(t, wireOK)
	g := newGateway(t, 1, http.NotFoundHandler(), func(c *Config) {
		route := func(host string) Route {
			return Route{Pool: "p", Match: Match{Host: host}, RequestHeaders: HeaderEdits{Set: []Field{{"Route", "route:" + host}}}}
		}
		c.Pools, c.Routes = []Pool{{Name: "p", Upstreams: []*url.URL{up}}}, []Route{route("a.example"), route("*.b.example"), route("")}
	})
	for host, want := range map[string]string{ // the route; "none": 400
		"a.example": "a.example", "A.Example.:80": "a.example", "a.example:": "a.example", "x.b.example:8080": "*.b.example",
		"[::1]": "", "[::1]:80": "", "127.0.0.1:80": "", "a.example.com": "",
		"a.example:80:80": "none", "a.example::": "none", "a.example:x": "none", "x.b.example:8:8": "none", "a.example:80,b": "none",
		"[::1]x": "none", "[::1": "none", "::1": "none", ":80": "none", ".": "none", "[]": "none", "": "none",
	} {
		conn := g.dial()
		conn.send("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		got := "none"
		if res := conn.response(); res.StatusCode == http.StatusOK {
			_, got, _ = strings.Cut(fields(<-seen, "Route")[0], "route:")
		} else if res.StatusCode != http.StatusBadRequest {
			got = res.Status
		}
		if got != want {
			t.Errorf("Host: %s takes the route %q, want %q", host, got, want)
		}
	}
}

func TestDotSegments(t *testing.T) {
	for path, want := range map[string]bool{
		"": false, "/": false, "*": false, "/a.b/c": false, "/.well-known/x": false, "/..a": false, "/...": false,
		"/a/.../b": false, "/.a/..b/c.": false,
		"/.": true, "/..": true, "/./": true, "/../x": true, "/a/./b": true, "/a/../b": true, "/a/..": true,
		"/.a/../b": true, "/a//..": true, `/..\x`: true, "/..;/x": true, "/.;a=b/x": true, "/a/..;x": true, `/a\..\x`: true, `\..`: true, "..": true, "/a/..%2f": false, "/a;../b": false,
	} {
		if got := hasDotSegment(path); got != want {
			t.Errorf("hasDotSegment(%q) = %v", path, got)
		}
	}
}

func TestCutPathPrefix(t *testing.T) {
	for _, tt := range []struct {
		path, prefix, rest string
		ok                 bool
	}{
		{"/files/x", "/files/", "x", true},
		{"/files/x", "/files", "/x", true},
		{"/files/x", "", "/files/x", true},
		{"", "", "", true},
		{"*", "/", "", false},
		{"/files", "/files/", "", false},
		{"/filesystem", "/files/", "", false},
		{"/files;a/../b", "/files/", "../b", true},
		{"/f;iles/x", "/files/", "", false},
		{"/a;b/c/x", "/a;b/c/", "x", true},
		{`\\files\x`, "/files/", "x", true},
		{"/;a/files/x", "/files/", "x", true},
		{"//;a/;b=c//files/x", "/files/", "x", true},
		{"/a/;b/c/x", "/a/c/", "x", true},
		{"/f;a/iles/x", "/files/", "", false},
		{"/;a", "/files/", "", false},
		{"/;a", "/", ";a", true},
		{"/;a/x", "/;a/", "x", true},
	} {
		if rest, ok := cutPathPrefix(tt.path, tt.prefix); rest != tt.rest || ok != tt.ok {
			t.Errorf("%q from %q: %q, %v; want %q, %v", tt.prefix, tt.path, rest, ok, tt.rest, tt.ok)
		}
	}
}
