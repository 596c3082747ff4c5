package proxy

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/problems"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
)

// FuzzPrefer: a preference shortens a wait, and never anything else.
func FuzzPrefer(f *testing.F) {
	for _, s := range []string{"wait=10", "wait=0", "respond-async, wait=99999999999999999999", "WAIT = 3 ;x=y", `wait="3"`, "wait=-1", ",=;,"} {
		f.Add(s, "")
		f.Add("handling=lenient", s)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		h := http1.Fields{http1.NewField("Prefer", first), http1.NewField("Prefer", second)}
		for _, limit := range []time.Duration{-1, time.Second, time.Hour} {
			wait, applied := queueTimeout(limit, h)
			if limit >= 0 && (wait < 0 || wait > limit) || applied < -1 || applied >= 0 && wait < minWait {
				t.Errorf("limit %v: waits %v, applied %d", limit, wait, applied)
			}
		}
		_ = prefersTicket(h)
	})
}

// FuzzAccept: every answer to what a client accepts is one of two.
func FuzzAccept(f *testing.F) {
	for _, s := range []string{"", "*/*", "application/json;q=0.5, text/html", "text/*;q=NaN", "a/b;q=1e999", ";;q=,", "application/problem+json; Q=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		w := httptest.NewRecorder()
		problems.Write(w, []string{accept}, problem{Status: 503, Detail: "detail"})
		if got := w.Header().Get("Content-Type"); got != "application/problem+json" && got != "text/plain; charset=utf-8" || w.Body.Len() == 0 {
			t.Errorf("%q for %q", got, accept)
		}
	})
}

// FuzzForwardedFor: nobody but a trusted proxy changes who the client is, and
// then not to what stands before the first address that no such proxy has.
func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{"203.0.113.9", "203.0.113.9, 10.0.0.2", "unknown,10.0.0.2:80", "[::1]:80, ::ffff:10.0.0.1", ",,", "fe80::1%eth0"} {
		f.Add("10.0.0.1:4000", s)
		f.Add("192.0.2.1:4000", s)
		f.Add("nonsense", s)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		own, fields := downstream.ParseAddr(remote), http1.Fields{http1.NewField("X-Forwarded-For", forwarded)}
		got := clientAddr(own, fields, trusted)
		if got != own && !containsAddr(trusted, own) {
			t.Errorf("%s is believed that it is %s", own, got)
		}
		fields[0].Value = "198.51.100.99, " + forwarded
		if again := clientAddr(own, fields, trusted); again != got && !containsAddr(trusted, got) {
			t.Errorf("one address more in front makes %s of %s", again, got)
		}
		if key := addressKey(got); len(key) > 45 {
			t.Errorf("key %q", key)
		}
	})
}

// FuzzHeaders: what only the gateway may write is gone, in whatever spelling, and
// nothing else.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"Kgate-Fence", "kgate_fence", "Kgate.Fence", "kgate~fence", "KGATE-", "Kgate", "X_Forwarded-For", "x-forwarded_host", "X-Forwardedfor", "\u212agate-Fence"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		plain := regexp.MustCompile("[^a-z0-9]").ReplaceAllString(strings.ToLower(name), "-")
		ours := strings.HasPrefix(plain, "kgate-")
		theirs := strings.HasPrefix(plain, "x-forwarded-")
		for _, spelled := range []string{name, http.CanonicalHeaderKey(name)} {
			for _, trusted := range []bool{false, true} {
				if gone := isUntrusted(spelled, trusted); isASCII(name) && gone != (ours || theirs && (!trusted || plain != strings.ToLower(name))) {
					t.Errorf("%q, trusted %t: gone %t", spelled, trusted, gone)
				}
			}
		}
	})
}

func isASCII(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(b byte) bool { return b >= 0x80 })
}

// FuzzPath: the path that is judged is the one that the upstream reads, whatever is cut
// off it and put before it; it has no dot segments, and what was encoded in it stays so.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/files/a", "/files", "/files/../b", "/files/%2e%2e/b", "//files//a", "/files/..a", "/files%2fa", `/files/..\b`, "/filesX/..", "/files%2F%2Fa|b", "http://h"} {
		f.Add(s)
	}
	base := &url.URL{Path: "/v1/x/", RawPath: "/v1%2Fx/"}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.ParseRequestURI(s)
		if err != nil || u.Opaque != "" || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || u.Path == "*" {
			return
		}
		before := cmp.Or(u.RawPath, u.EscapedPath())
		r := &http1.Request{URL: *u}
		canonical(r)
		dots := slices.ContainsFunc(strings.FieldsFunc(u.Path, func(c rune) bool { return c == '/' || c == '\\' }), func(seg string) bool {
			seg, _, _ = strings.Cut(seg, ";")
			return seg == "." || seg == ".."
		})
		if wrong := judgeTarget(r); (wrong != "") != dots {
			t.Errorf("%q: dots %t, but: %s", u.Path, dots, wrong)
		}
		same := func(u *url.URL) {
			t.Helper()
			read, err := url.ParseRequestURI(u.RequestURI())
			if err != nil || read.Path != u.Path || read.RawQuery != u.RawQuery || !dots && judgeTarget(&http1.Request{URL: *read}) != "" {
				t.Errorf("%q is sent as %q: %v", u.Path, u.RequestURI(), err)
			}
		}
		same(&r.URL)
		if sent := r.URL.EscapedPath(); strings.Count(sent, "%") < strings.Count(before, "%") || strings.Count(sent, "/") > strings.Count(before, "/")+1 {
			t.Errorf("%q is sent as %q", before, sent)
		}
		out, was := r.URL, r.URL.Path
		stripPrefix(&out, "/files")
		rest, ok := cutPathPrefix(was, "/files")
		if strings.HasPrefix(was, "/files") && !ok || !strings.HasSuffix(was, rest) || out.Path != was && (!ok || strings.TrimPrefix(out.Path, "/") != strings.TrimPrefix(rest, "/")) {
			t.Errorf("%q becomes %q", was, out.Path)
		}
		same(&out)
		joinPath(base, &out)
		same(&out)
	})
}
