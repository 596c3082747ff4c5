package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/demo"
)

// TestAnswersAreAsDescribed asks a gateway for everything that its description
// has, well and badly, and holds the answers to the description.
func TestAnswersAreAsDescribed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real gateways")
	}
	t.Parallel()
	_, upstream := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{Gateways: 2, K: 1, Upstream: upstream})
	d := describedBy(t, c.Gateways[0])

	var held struct{ ID string }
	d.ask(t, "POST", ticketsPath, `{"pool": "pool", "ttl": "30s", "note": "a job"}`, 201, &held)
	d.ask(t, "POST", ticketsPath, `{"pool": "pool", "ttl": "30s"}`, 201, nil)
	d.ask(t, "POST", ticketsPath, `{"pool": "pool", "ttl": "61s"}`, 400, nil)
	d.ask(t, "POST", ticketsPath, `{"pool": "x"}`, 404, nil)
	d.ask(t, "GET", ticketsPath+"/"+held.ID, "", 200, nil)
	d.ask(t, "PUT", ticketsPath+"/"+held.ID, `{}`, 200, nil)
	d.ask(t, "GET", ticketsPath+"/x", "", 404, nil)

	var line admin.Line
	d.ask(t, "GET", "/api/v1/line?pool=pool", "", 200, &line)
	if len(line.Holders) != 1 || len(line.Line) != 1 {
		t.Fatalf("the line is %+v", line)
	}
	d.ask(t, "DELETE", "/api/v1/line/"+line.Line[0].ID, "", 204, nil)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	client, leave := context.WithCancel(t.Context())
	defer leave()
	go askTraced(client, c.Gateways[0], "00-"+trace+"-b7ad6b7169203331-01")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Await(ctx, func() error {
		_, err := c.Gateways[0].get(t.Context(), "/api/v1/why?trace="+trace)
		return err
	}); err != nil {
		t.Error(err)
	}
	d.ask(t, "GET", "/api/v1/why?trace="+trace, "", 200, nil)
	leave()
	d.ask(t, "DELETE", ticketsPath+"/"+held.ID, "", 204, nil)

	var status admin.Status
	d.ask(t, "GET", "/api/v1/status", "", 200, &status)
	if status.Gateway.Name != "gw-1" {
		t.Errorf("the status is of %q", status.Gateway.Name)
	}
	for _, q := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/api/v1/line?pool=x", "", 404},
		{"GET", "/api/v1/why?trace=x", "", 404},
		{"GET", "/api/v1/why", "", 400},
		{"GET", "/api/v1/openapi.json", "", 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/debug/line", "", 200},
		{"GET", "/debug/line?pool=x", "", 404},
		{"DELETE", "/api/v1/line/x", "", 404},
		{"POST", "/api/v1/pools/pool", `{"k": 3}`, 200},
		{"POST", "/api/v1/pools/pool", `{"k": 0}`, 400},
		{"POST", "/api/v1/reload", "", 200},
		{"POST", "/api/v1/members/gw-2/suspend", "", 202},
		{"POST", "/api/v1/drain", "", 202},
		{"POST", "/api/v1/leave", "", 202},
	} {
		d.ask(t, q.method, q.path, q.body, q.status, nil)
	}
	for path, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			if !d.asked[method+" "+path] && !strings.HasSuffix(path, "/events") { // an endless answer
				t.Errorf("%s %s has not been asked for", method, path)
			}
		}
	}
}

// askTraced is a client that sends a trace along.
func askTraced(ctx context.Context, g *Gateway, traceparent string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL(), http.NoBody)
	if err != nil {
		return
	}
	req.Header.Set("Traceparent", traceparent)
	if res, err := g.client.Do(req); err == nil {
		_ = res.Body.Close()
	}
}

// description is what a gateway's admin address says of itself.
type description struct {
	g      *Gateway
	doc    *openapi3.T
	router routers.Router
	asked  map[string]bool
}

func describedBy(t *testing.T, g *Gateway) *description {
	t.Helper()
	text, err := g.get(t.Context(), "/api/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Clients must accept keys they do not know; this test does not.
	for _, schema := range doc.Components.Schemas {
		schema.Value.WithoutAdditionalProperties()
	}
	doc.Servers = nil // the router is to know no host
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &description{g, doc, router, make(map[string]bool)}
}

// ask makes a request, holds its answer to the description, and decodes it into v
// unless that is nil.
func (d *description) ask(t *testing.T, method, path, body string, status int, v any) {
	t.Helper()
	request := func(base string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		return r
	}
	res, err := d.g.client.Do(request("http://" + d.g.Admin))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != status {
		t.Errorf("%s %s: %s, want %d: %s", method, path, res.Status, status, answer)
		return
	}
	route, params, err := d.router.FindRoute(request(""))
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	d.asked[route.Method+" "+route.Path] = true
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request(""), PathParams: params, Route: route},
		Status:                 res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(answer)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		t.Errorf("%s %s: %v\n%s", method, path, err, answer)
	}
	if v != nil {
		if err := json.Unmarshal(answer, v); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
	}
}
