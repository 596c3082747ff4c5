package problems

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestAcceptsJSON(t *testing.T) {
	for accept, want := range map[string]bool{
		"*/*":                          true,
		"application/json":             true,
		"application/problem+json":     true,
		"Application/*":                true,
		"text/plain, application/json": true,
		"application/json;q=0.5, */*":  false, // text is as good as everything else
		"text/plain":                   false,
		"image/png":                    false,
		"text/plain, */*;q=0.1":        false,
		"text/html,application/xml;q=0.9,*/*;q=0.8":             false, // a browser
		"application/problem+json;q=0, */*":                     false,
		"*/*, application/json;q=0":                             false,
		"application/problem+json;q=1, application/json;q=0":    true, // the more specific counts
		"application/json;q=x":                                  false,
		"application/json;q=NaN":                                false,
		"application/json; charset=utf-8; q=0.9, text/*; q=0.8": true,
		`text/html;x=", */*", application/json;q=0.9`:           false, // one type, with a comma in it
		"": false,
	} {
		if got := acceptsJSON([]string{accept}); got != want {
			t.Errorf("Accept: %s: %v", accept, got)
		}
	}
	if !acceptsJSON(nil) {
		t.Error("no Accept accepts everything")
	}
}

// TestFields: the body is RFC 9457's, byte for byte.
func TestFields(t *testing.T) {
	for want, d := range map[string]Details{
		`{"type":"` + TypeBase + `not-found","title":"Not Found","status":404,"detail":"no route"}`: {Status: 404, Detail: "no route"},
		`{"type":"about:blank","title":"I'm a teapot","status":418,"detail":""}`:                    {Status: 418},
		`{"type":"` + TypeBase + `timeout","title":"Service Unavailable","status":503,"detail":"d","pool":"p","reason":"timeout","position":2,"retry_after":3}`: {
			Status: 503, Detail: "d", Pool: "p", Reason: "timeout", Position: 2, RetryAfter: 3,
		},
	} {
		w := httptest.NewRecorder()
		Write(w, nil, d)
		if got := w.Body.String(); got != want+"\n" {
			t.Errorf("got %s", got)
		}
		if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("header %v", h)
		}
	}
	w := httptest.NewRecorder()
	Write(w, []string{"text/html"}, Details{Status: 404, Detail: "a\nb"})
	if got := w.Body.String(); got != "404 Not Found: a b\n" {
		t.Errorf("got %q", got)
	}
}

// TestPage: the page of TypeBase has a section for each type.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{ // the reasons of refusals and of tickets' ends
		"queue-full", "timeout", "draining", "isolated", "client-limit", "cancelled", "upstream-down",
		"released", "expired", "hold-max", "lost",
	}
	for status, name := range kinds {
		if http.StatusText(status) == "" {
			t.Errorf("%d is no status", status)
		}
		names = append(names, name)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("docs/problems.md has no section %s", name)
		}
	}
}
