package http1

import (
	"net/url"
	"testing"
)

// TestTargets: a plain path is read here, and must come out as net/url would have it.
func TestTargets(t *testing.T) {
	targets := []string{
		"/", "/a/b", "//h/x", "///", "/.", "/a/../b", "/x?", "/x??", "/x?y", "/x?y=?", "/?", "*", "http://h/x",
		"http://h", "/%41", "/%2f?a", "/%zz", "/a:b", ":", "x", "?", "/x#f", "/x?y#f", "/\xff", "/x?\xff", "/x?%zz",
	}
	for c := range 256 {
		targets = append(targets, "/"+string([]byte{byte(c)})+"x", "/x?"+string([]byte{byte(c)}))
	}
	for _, target := range targets {
		if c := target[len(target)-1]; c <= ' ' || c == 0x7f || len(target) > 1 && (target[1] <= ' ' || target[1] == 0x7f) {
			continue // in no head
		}
		r := Request{Method: "GET", Target: target}
		err := r.readTarget()
		want, wrong := url.ParseRequestURI(target)
		if (err == nil) != (wrong == nil) || err == nil && r.URL != *want {
			t.Errorf("%q: %#v, %v; net/url says %#v, %v", target, r.URL, err, want, wrong)
		}
	}
}
