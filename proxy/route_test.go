package proxy

import (
	"net/http"
	"net/url"
	"testing"
)

// TestFirstMatch: the first route that matches wins, not the most specific.
func TestFirstMatch(t *testing.T) {
	var rs routes
	for _, m := range []Match{
		{Host: "Files.Example.com", PathPrefix: "/files/", Methods: []string{"GET", "HEAD"}},
		{Host: "*.example.com", PathPrefix: "/files/"},
		{PathPrefix: "/files"},
		{PathPrefix: "/files/more/"}, // never reached
		{Methods: []string{"PROPFIND"}},
		{Host: "::1"},
	} {
		rs = append(rs, newRoute(Route{Match: m}, nil, nil))
	}
	for _, tt := range []struct {
		method, host, path string
		want               int // -1: none
	}{
		{"GET", "files.example.com", "/files/x", 0},
		{"GET", "FILES.example.COM:8080", "/files/x", 0},
		{"GET", "files.example.com.", "/files/x", 0},
		{"HEAD", "files.example.com", "/files/", 0},
		{"PUT", "files.example.com", "/files/x", 1},
		{"PUT", "a.b.example.com", "/files/x", 1},
		{"PUT", "example.com", "/files/x", 2},
		{"PUT", "notexample.com", "/files/x", 2},
		{"GET", "", "/filesystem", 2},
		{"GET", "h", "//files//x", 2},
		{"GET", "h", `/\files\x`, 2},
		{"GET", "h", "/files;a=b/x", 2},
		{"GET", "h", "/files/more/x", 2},
		{"GET", "h", "/Files/", -1},
		{"GET", "h", "/", -1},
		{"PROPFIND", "h", "/", 4},
		{"GET", "[::1]:80", "/", 5},
		{"OPTIONS", "h", "*", -1},
	} {
		got := rs.find(&http.Request{Host: tt.host, URL: &url.URL{Path: tt.path}}, tt.method)
		want := (*route)(nil)
		if tt.want >= 0 {
			want = rs[tt.want]
		}
		if got != want {
			t.Errorf("%s %s%s: got %+v, want route %d", tt.method, tt.host, tt.path, got, tt.want)
		}
	}
}

func TestHostname(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "H": "h", "h:80": "h", "h.": "h", "h.:80": "h", "[::1]:80": "::1", "[::1]": "::1",
		"127.0.0.1:1": "127.0.0.1", "h:80:90": "h:80:90",
	} {
		if got := hostname(in); got != want {
			t.Errorf("hostname(%q) = %q, want %q", in, got, want)
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

func TestStripPrefix(t *testing.T) {
	for _, tt := range []struct{ target, prefix, want string }{
		{"/files/x", "/files", "/x"},
		{"/files/x", "/files/", "/x"},
		{"/files", "/files", "/"},
		{"//files//x", "/files", "//x"},
		{"//files//x", "/files/", "/x"},
		{"/files;a=b/x", "/files/", "/x"},
		{"/other/x", "/files", "/other/x"},
		{"/files/a%2Fb?q=1", "/files", "/a%2Fb?q=1"},
		{"/fil%65s/a%2Fb", "/files", "/a/b"}, // its encoded form cannot be cut
	} {
		u, err := url.ParseRequestURI(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		stripPrefix(u, tt.prefix)
		if got := u.RequestURI(); got != tt.want {
			t.Errorf("%s without %s: %s, want %s", tt.target, tt.prefix, got, tt.want)
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
		{"", "/", "", true},
		{"", "", "/", true},
		{"*", "/", "", false},
		{"/files", "/files/", "", false},
		{"/filesystem", "/files/", "", false},
		{"/files;a/../b", "/files/", "../b", true},
		{"/f;iles/x", "/files/", "", false},
		{"/a;b/c/x", "/a;b/c/", "x", true},
		{`\\files\x`, "/files/", "x", true},
	} {
		if rest, ok := cutPathPrefix(tt.path, tt.prefix); rest != tt.rest || ok != tt.ok {
			t.Errorf("%q from %q: %q, %v; want %q, %v", tt.prefix, tt.path, rest, ok, tt.rest, tt.ok)
		}
	}
}
