package library

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/gateway"
)

// TestAdminBehindPrefix: all that the status page refers to is there, and so is the
// stream that keeps it fresh.
func TestAdminBehindPrefix(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	mux := http.NewServeMux()
	mux.Handle("/ops/kgate/", http.StripPrefix("/ops/kgate", gateway.Admin(n)))
	s := httptest.NewServer(mux)
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	get := func(at string) (status int, text string) {
		res, err := http.Get(s.URL + at)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	const prefix = "/ops/kgate/"
	_, page := get(prefix)
	_, script := get(prefix + "assets/page.js")
	refs := regexp.MustCompile(`(?:href|src)="([^"#]+)"|(?:fetch)\("([^"]+)"`).FindAllStringSubmatch(page+script, -1)
	for _, ref := range refs {
		at := ref[1] + ref[2]
		switch {
		case strings.Contains(at, "://"):
		case strings.HasPrefix(at, "/"):
			t.Errorf("%s is not below the prefix", at)
		case ref[1] != "":
			if status, _ := get(path.Join(prefix, at)); status != http.StatusOK {
				t.Errorf("%s: %d", at, status)
			}
		}
	}
	if len(refs) < 6 || !strings.Contains(script, `EventSource("events")`) {
		t.Errorf("the page refers to %q", refs)
	}
}

// TestAdminAfterTheEnd: a server that outlives its node still answers operators.
func TestAdminAfterTheEnd(t *testing.T) {
	n := cluster(t, 1, 1)[0]
	admin := gateway.Admin(n)
	if err := n.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/", "/readyz", "/metrics", "/api/v1/status", "/debug/line"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+at, nil))
		if ctx.Err() != nil || w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d after %v: %.200s", at, w.Code, time.Since(began), w.Body)
		}
		cancel()
	}
}
