package proxy

import (
	"net/url"
	"testing"

	"github.com/kgate/kgate/proxy/http1"
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
		got := rs.find(&http1.Request{Host: tt.host, URL: url.URL{Path: tt.path}}, tt.method)
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
		"127.0.0.1:1": "127.0.0.1", "h:80:90": "",
	} {
		if got := hostname(in); got != want {
			t.Errorf("hostname(%q) = %q, want %q", in, got, want)
		}
	}
}
