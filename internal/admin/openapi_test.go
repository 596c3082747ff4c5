package admin_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-chi/chi/v5"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admin/admintest"
)

// notDescribed are for people and for the page's own script.
var notDescribed = []string{"/", "/events", "/assets/", "/debug/pprof/"}

// described reads the description that the address itself serves.
func described(t *testing.T, h http.Handler) *openapi3.T {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, local(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/openapi.json", http.NoBody)))
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// local makes a request one from this machine.
func local(r *http.Request) *http.Request {
	came("127.0.0.1:9080", "127.0.0.1:40000")(r)
	r.Host = "127.0.0.1:9080"
	return r
}

// TestOpenAPIHasAllRoutes compares the description with what the router serves,
// both ways.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	h := new(fakeControl).handler(t, "")
	var served, told []string
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
	for path, item := range described(t, h).Paths.Map() {
		for method := range item.Operations() {
			told = append(told, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(told)
	if !slices.Equal(served, told) {
		t.Errorf("served:\n%s\ndescribed:\n%s", strings.Join(served, "\n"), strings.Join(told, "\n"))
	}
}

// TestAnswersAreAsDescribed asks for everything, well and badly, and holds
// requests and answers against the description.
func TestAnswersAreAsDescribed(t *testing.T) {
	cfg := admin.ConfigForTest()
	cfg.Control, cfg.Tickets = new(fakeControl), admintest.NewTickets(map[string]int{"downloads": 1})
	h, err := admin.NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	doc := described(t, h)
	// Users must put up with keys to come; this test does not.
	for _, schema := range doc.Components.Schemas {
		schema.Value.WithoutAdditionalProperties()
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(map[string]bool)
	for _, ask := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/api/v1/status", "", 200},
		{"GET", "/api/v1/line?pool=downloads", "", 200},
		{"GET", "/api/v1/line?pool=x", "", 404},
		{"GET", "/api/v1/why?trace=" + strings.Repeat("ab", 16), "", 200},
		{"GET", "/api/v1/why?trace=x", "", 404},
		{"GET", "/api/v1/why", "", 400},
		{"GET", "/api/v1/openapi.json", "", 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/debug/line", "", 200},
		{"GET", "/debug/line?pool=x", "", 404},
		{"DELETE", "/api/v1/line/downloads.7.102@gw-1", "", 204},
		{"DELETE", "/api/v1/line/x", "", 404},
		{"POST", "/api/v1/pools/downloads", `{"k":3}`, 200},
		{"POST", "/api/v1/pools/downloads", `{"k":0}`, 400},
		{"POST", "/api/v1/drain", "", 202},
		{"POST", "/api/v1/leave", "", 202},
		{"POST", "/api/v1/members/gw-3/suspend", "", 202},
		{"POST", "/.kgate/tickets", `{"pool":"downloads","ttl":"30s","note":"a job"}`, 201},
		{"POST", "/.kgate/tickets", `{"pool":"x"}`, 404},
		{"GET", "/.kgate/tickets/x", "", 404},
	} {
		w := httptest.NewRecorder()
		r := local(httptest.NewRequestWithContext(t.Context(), ask.method, ask.path, strings.NewReader(ask.body)))
		if ask.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		h.ServeHTTP(w, r)
		if w.Code != ask.status {
			t.Errorf("%s %s: %d, want %d: %s", ask.method, ask.path, w.Code, ask.status, w.Body)
			continue
		}
		// The router that finds the description knows no host.
		r = httptest.NewRequestWithContext(t.Context(), ask.method, ask.path, strings.NewReader(ask.body))
		route, params, err := router.FindRoute(r)
		if err != nil {
			t.Errorf("%s %s: %v", ask.method, ask.path, err)
			continue
		}
		answered[route.Method+" "+route.Path] = true
		if err := isAsDescribed(t, r, route, params, w); err != nil {
			t.Errorf("%s %s: %v\n%s", ask.method, ask.path, err, w.Body)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			// What becomes of a ticket has tests of its own.
			if !answered[method+" "+path] && !strings.HasPrefix(path, admin.TicketsPath+"/") {
				t.Errorf("%s %s has not been asked for", method, path)
			}
		}
	}
}

func isAsDescribed(t *testing.T, r *http.Request, route *routers.Route, params map[string]string, w *httptest.ResponseRecorder) error {
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}
	return openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}
