package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/kgate/kgate/internal/admin"
)

// notDescribed are routes for people and for the page's own script.
var notDescribed = []string{"/", "/events", "/assets/", "/debug/pprof/"}

// TestOpenAPIHasAllRoutes compares the description with the router's routes, both ways.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	h := new(fakeControl).handler(t, "")
	var served, described []string
	err := chi.Walk(h.(chi.Routes), func(method, route string, handler http.Handler, _ ...func(http.Handler) http.Handler) error {
		for _, prefix := range notDescribed {
			if route == prefix || len(prefix) > 1 && strings.HasPrefix(route, prefix) {
				return nil
			}
		}
		if method == http.MethodHead || strings.HasPrefix(route, admin.TicketsPath) || !admin.Serves(handler, method) {
			return nil
		}
		served = append(served, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The ticket API is a router of its own.
	for _, route := range []string{"POST ", "GET /{id}", "PUT /{id}", "DELETE /{id}", "GET /{id}/events"} {
		method, rest, _ := strings.Cut(route, " ")
		served = append(served, method+" "+admin.TicketsPath+rest)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/openapi.json", http.NoBody)
	here(r)
	r.Host = "127.0.0.1:9080"
	h.ServeHTTP(w, r)
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served:\n%s\ndescribed:\n%s", strings.Join(served, "\n"), strings.Join(described, "\n"))
	}
}
