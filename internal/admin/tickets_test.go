package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/admin/admintest"
	"github.com/kgate/kgate/internal/admission"
)

// document is a ticket as a client reads it.
type document struct {
	ID, Pool, State, ETA, TTL, Fence, Reason, Detail, Title string
	Position                                                int
	Status                                                  any
	Expires                                                 time.Time
}

// answer is a response that has been read.
type answer struct {
	document
	code   int
	header http.Header
	text   string
}

// ask sends a request to a handler, as JSON if it has a body.
func ask(t *testing.T, h http.Handler, method, path, body string, change ...func(*http.Request)) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Host = "127.0.0.1:9080"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	a := answer{code: w.Code, header: w.Header(), text: w.Body.String()}
	if strings.Contains(w.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &a.document); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, a.text)
		}
	}
	return a
}

func ticketHandler(t *testing.T, m admin.Tickets) http.Handler {
	t.Helper()
	h := admin.NewTicketHandler(admin.TicketConfig{Tickets: m, Open: func(pool string) bool { return pool != "closed" }})
	return h
}

const at = "/.kgate/tickets"

// lastTickets end something right after each ticket is taken.
type lastTickets struct {
	admin.Tickets
	end func()
}

func (l lastTickets) RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error) {
	defer l.end()
	return l.Tickets.RequestTicket(ctx, req, ttl, note)
}

// TestTicketAtTheEnd: a ticket that is taken when the gateway ends is given back, and its client gets
// an error. An empty answer would mean that the client has a ticket.
func TestTicketAtTheEnd(t *testing.T) {
	m := admintest.NewTickets(map[string]int{"p": 1})
	ctx, cancel := context.WithCancelCause(t.Context())
	h := ticketHandler(t, lastTickets{m, func() { cancel(admin.ErrUnavailable) }})
	a := ask(t, h, "POST", at, `{"pool":"p"}`, func(r *http.Request) { *r = *r.WithContext(ctx) })
	if a.code != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", a.code, a.text)
	}
	if a := ask(t, ticketHandler(t, m), "POST", at, `{"pool":"p"}`); a.State != "granted" {
		t.Errorf("the next one: %s", a.text)
	}
}

// asks notes what is asked for.
type asks struct {
	admin.Tickets
	last admission.Request
}

func (a *asks) RequestTicket(ctx context.Context, req admission.Request, ttl time.Duration, note string) (admission.Ticket, error) {
	a.last = req
	return a.Tickets.RequestTicket(ctx, req, ttl, note)
}

// A ticket may be for a client, where whoever asks is trusted.
func TestTicketOfAClient(t *testing.T) {
	m := &asks{Tickets: admintest.NewTickets(map[string]int{"p": 9})}
	body := `{"pool":"p","client":"gold"}`
	if a := ask(t, ticketHandler(t, m), "POST", at, body); a.code != 400 || !strings.Contains(a.text, "admin address") || m.last.Client != "" {
		t.Errorf("a stranger: %d %s, %+v", a.code, a.text, m.last)
	}
	h := admin.NewTicketHandler(admin.TicketConfig{Tickets: m, Client: func(pool, name string) string { return pool + "/" + name }})
	if a := ask(t, h, "POST", at, body); a.code != 201 || m.last.Client != "p/gold" {
		t.Errorf("%d %s, %+v", a.code, a.text, m.last)
	}
}

func TestTicketCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := admintest.NewTickets(map[string]int{"p": 1})
		h := ticketHandler(t, m)
		first := ask(t, h, "POST", at, `{"pool":"p","ttl":"1m","note":"me"}`)
		if first.code != 201 || first.State != "granted" || first.header.Get("Location") != at+"/"+first.ID ||
			first.Fence != "p/1/1" || first.TTL != "1m0s" || time.Until(first.Expires) != time.Minute {
			t.Fatalf("%d, %s", first.code, first.text)
		}
		second := ask(t, h, "POST", at+"/", `{"pool":"p"}`)
		if second.code != 201 || second.State != "waiting" || second.TTL != "30s" {
			t.Fatalf("%d, %s", second.code, second.text)
		}
		here := at + "/" + second.ID
		if a := ask(t, h, "GET", here, ""); a.code != 200 || a.Position != 1 || a.ETA != "1s" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d, %s", a.code, a.text)
		}
		// A long poll ends with the wait, or with the grant.
		begun := time.Now()
		if a := ask(t, h, "GET", here+"?wait=20s", ""); a.State != "waiting" || time.Since(begun) != 20*time.Second {
			t.Errorf("%s after %v", a.text, time.Since(begun))
		}
		time.AfterFunc(5*time.Second, func() { ask(t, h, "DELETE", at+"/"+first.ID, "") })
		begun = time.Now()
		if a := ask(t, h, "GET", here+"?wait=20s", ""); a.State != "granted" || a.Fence != "p/1/2" || time.Since(begun) != 5*time.Second {
			t.Errorf("%s after %v", a.text, time.Since(begun))
		}
		begun = time.Now()
		if a := ask(t, h, "GET", here+"?wait=20s", ""); a.State != "granted" || time.Since(begun) != 0 {
			t.Errorf("a granted ticket: %s after %v", a.text, time.Since(begun))
		}
		for range 3 {
			time.Sleep(20 * time.Second)
			if a := ask(t, h, "PUT", here, ""); a.code != 200 || time.Until(a.Expires) != 30*time.Second {
				t.Errorf("renewed: %d, %s", a.code, a.text)
			}
		}
		if a := ask(t, h, "DELETE", here, ""); a.code != 204 || a.text != "" {
			t.Errorf("%d, %s", a.code, a.text)
		}
		for _, method := range []string{"DELETE", "GET", "PUT"} {
			if a := ask(t, h, method, here, ""); a.code != 410 || a.Reason != "released" || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s after release: %d, %s", method, a.code, a.text)
			}
		}
		third := ask(t, h, "POST", at, `{"pool":"p","ttl":"1s"}`)
		time.Sleep(2 * time.Second)
		if a := ask(t, h, "PUT", at+"/"+third.ID, ""); a.code != 410 || a.Reason != "expired" {
			t.Errorf("%d, %s", a.code, a.text)
		}
	})
}

func TestTicketRefusals(t *testing.T) {
	m := admintest.NewTickets(map[string]int{"p": 1, "closed": 1})
	h := ticketHandler(t, m)
	id := ask(t, h, "POST", at, `{"pool":"p"}`).ID
	for name, tc := range map[string]struct {
		method, path, body string
		code               int
		says               string
	}{
		"a ttl of a year":   {"POST", at, `{"pool":"p","ttl":"8760h"}`, 400, "renew the ticket for as long as you need it"},
		"next to no ttl":    {"POST", at, `{"pool":"p","ttl":"1ms"}`, 400, "not between 1s and 10m0s"},
		"a negative ttl":    {"POST", at, `{"pool":"p","ttl":"-5s"}`, 400, "not between"},
		"ttl as a number":   {"POST", at, `{"pool":"p","ttl":30}`, 400, "ttl"},
		"ttl of words":      {"POST", at, `{"pool":"p","ttl":"soon"}`, 400, `write one such as \"30s\"`},
		"no pool":           {"POST", at, `{}`, 400, "pool is missing"},
		"unknown pool":      {"POST", at, `{"pool":"x"}`, 404, "x"},
		"closed pool":       {"POST", at, `{"pool":"closed"}`, 404, "given out here"},
		"unknown key":       {"POST", at, `{"pool":"p","tll":"1s"}`, 400, "tll"},
		"two documents":     {"POST", at, `{"pool":"p"}{}`, 400, "more than one document"},
		"no JSON":           {"POST", at, `pool=p`, 400, "body"},
		"cut off":           {"POST", at, `{"pool":`, 400, "body"},
		"too much":          {"POST", at, `{"pool":"` + strings.Repeat("x", 5000) + `"}`, 413, "too large"},
		"long note":         {"POST", at, `{"pool":"p","note":"` + strings.Repeat("x", 257) + `"}`, 400, "longer than 256"},
		"note of two lines": {"POST", at, `{"pool":"p","note":"a\nb"}`, 400, "control characters"},
		"unknown ticket":    {"GET", at + "/aaaaaaaaaaaaaaaaaaaaaaaaaa-1", "", 404, "no such ticket"},
		"no ticket":         {"GET", at + "/NO_SUCH", "", 404, "no such ticket"},
		"endless ticket":    {"GET", at + "/" + strings.Repeat("a", 10_000), "", 404, "no such ticket"},
		"escaped":           {"DELETE", at + "/..%2f..%2fapi", "", 404, "no such ticket"},
		"wait of words":     {"GET", at + "/" + id + "?wait=long", "", 400, "write one such as wait=30s"},
		"negative wait":     {"GET", at + "/" + id + "?wait=-1s", "", 400, "not a duration"},
		"list":              {"GET", at, "", 405, "only POST"},
		"patch":             {"PATCH", at + "/" + id, "", 405, "only DELETE, GET, PUT"},
		"post to events":    {"POST", at + "/" + id + "/events", "", 405, "only GET"},
		"elsewhere":         {"GET", at + "/" + id + "/x", "", 404, "nothing at this path"},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, h, tc.method, tc.path, tc.body)
			if a.code != tc.code || fmt.Sprint(a.Status) != fmt.Sprint(tc.code) || !strings.Contains(a.text, tc.says) ||
				a.header.Get("Content-Type") != "application/problem+json" || strings.Contains(a.Detail, "admin:") {
				t.Errorf("%d: %s\nwant %d with %q", a.code, a.text, tc.code, tc.says)
			}
		})
	}
	if granted, waiting := m.Count("p"); granted != 1 || waiting != 0 {
		t.Errorf("%d granted, %d waiting: something refused was done", granted, waiting)
	}
	for name, tc := range map[string]struct {
		err        error
		code       int
		retryAfter string
	}{
		"isolated": {fmt.Errorf("%w: no lease", admin.ErrUnavailable), 503, "1"},
		"too many": {fmt.Errorf("%w: 100000", admin.ErrTooMany), 429, "1"},
		"conflict": {admin.ErrConflict, 409, ""},
		"broken":   {errors.New("secret of the inside"), 500, ""},
	} {
		m.Fail(tc.err)
		for _, a := range []answer{ask(t, h, "POST", at, `{"pool":"p"}`), ask(t, h, "PUT", at+"/"+id, "")} {
			if a.code != tc.code || a.header.Get("Retry-After") != tc.retryAfter || strings.Contains(a.text, "secret") {
				t.Errorf("%s: %d, Retry-After %q, %s", name, a.code, a.header.Get("Retry-After"), a.text)
			}
		}
	}
}

// A page of another site cannot have a visitor's browser ask for tickets.
func TestNoTicketsForOtherOrigins(t *testing.T) {
	m := admintest.NewTickets(map[string]int{"p": 1})
	h := ticketHandler(t, m)
	for name, change := range map[string]func(*http.Request){
		"fetch": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"old":   func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"form":  func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"none":  func(r *http.Request) { r.Header.Del("Content-Type") },
	} {
		if a := ask(t, h, "POST", at, `{"pool":"p"}`, change); a.code != 403 && a.code != 415 {
			t.Errorf("%s: %d, %s", name, a.code, a.text)
		}
	}
	if granted, _ := m.Count("p"); granted != 0 {
		t.Error("a ticket was given out")
	}
}

// A page that may use tickets of one pool gets none of another pool.
func TestTicketsForPages(t *testing.T) {
	m := admintest.NewTickets(map[string]int{"p": 1, "q": 1})
	h := admin.NewTicketHandler(admin.TicketConfig{Tickets: m, Pages: func(_ context.Context, pool string) bool { return pool == "" || pool == "p" }})
	elsewhere := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	if a := ask(t, h, "POST", at, `{"pool":"q"}`, elsewhere); a.code != 403 {
		t.Errorf("%d, %s", a.code, a.text)
	}
	a := ask(t, h, "POST", at, `{"pool":"p"}`, elsewhere)
	if a.code != 201 {
		t.Fatalf("%d, %s", a.code, a.text)
	}
	if a := ask(t, h, "DELETE", at+"/"+a.ID, "", elsewhere); a.code != 204 {
		t.Errorf("%d, %s", a.code, a.text)
	}
	if granted, waiting := m.Count("q"); granted+waiting != 0 {
		t.Error("a ticket was given out")
	}
}

// A client that is gone when its ticket is made leaves no ticket behind.
func TestTicketOfALostClient(t *testing.T) {
	m := admintest.NewTickets(map[string]int{"p": 1})
	h := ticketHandler(t, m)
	ask(t, h, "POST", at, `{"pool":"p"}`, func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(ctx)
	})
	if granted, waiting := m.Count("p"); granted+waiting != 0 {
		t.Errorf("%d granted, %d waiting", granted, waiting)
	}
}

// The server's timeouts do not cut long polls and events short, also when the
// handler is mounted in another router.
func TestTicketsOverASocket(t *testing.T) {
	m := admintest.NewTickets(map[string]int{"p": 1})
	router := chi.NewRouter()
	router.Mount(at, ticketHandler(t, m))
	server := httptest.NewUnstartedServer(router)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	server.Start()
	defer server.Close()
	first := ask(t, router, "POST", at, `{"pool":"p"}`)
	second := ask(t, router, "POST", at, `{"pool":"p"}`)
	get := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := get(at + "/" + second.ID + "?wait=600ms")
	var a document
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.State != "waiting" {
		t.Errorf("%+v, %v", a, err)
	}
	resp.Body.Close()

	resp = get(at + "/" + second.ID + "/events")
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("%s", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func() (event, data string) {
		for lines.Scan() && lines.Text() != "" {
			kind, rest, _ := strings.Cut(lines.Text(), ": ")
			switch kind {
			case "event":
				event = rest
			case "data":
				data = rest
			}
		}
		return event, data
	}
	if event, data := next(); event != "waiting" || !strings.Contains(data, `"position":1`) {
		t.Errorf("%s %s", event, data)
	}
	time.AfterFunc(500*time.Millisecond, func() { m.Drop(first.ID, admission.EndExpired) })
	if event, data := next(); event != "granted" || !strings.Contains(data, `"fence":"p/1/2"`) {
		t.Errorf("%s %s", event, data)
	}
	m.Drop(second.ID, admission.EndLost)
	if event, data := next(); event != "gone" || data != `{"reason":"lost"}` {
		t.Errorf("%s %s", event, data)
	}
	if lines.Scan() {
		t.Errorf("after the end: %s", lines.Text())
	}
}

// fakeControl notes the calls.
type fakeControl struct {
	admin.Lines // nobody asks
	admin.Peers

	did []string
	err error
}

func (c *fakeControl) note(format string, args ...any) error {
	c.did = append(c.did, fmt.Sprintf(format, args...))
	return c.err
}

func (c *fakeControl) Reload(context.Context) ([]string, error) {
	return []string{"log.level: info -> debug (reload)"}, c.note("reload")
}

func (c *fakeControl) SetRate(context.Context, string, admin.RateChange) error { return nil }

func (c *fakeControl) SetK(_ context.Context, pool, upstream string, k, was int) error {
	if upstream != "" {
		return c.note("k %s %s %d %d", pool, upstream, k, was)
	}
	return c.note("k %s %d %d", pool, k, was)
}
func (c *fakeControl) Drain()                                    { _ = c.note("drain") }
func (c *fakeControl) Leave()                                    { _ = c.note("leave") }
func (c *fakeControl) Suspend(_ context.Context, n string) error { return c.note("suspend %s", n) }
func (c *fakeControl) Report(string, int) admin.Report           { return admin.Report{} }
func (c *fakeControl) Ready() (bool, string)                     { return true, "" }
func (c *fakeControl) handler(t *testing.T, token string) http.Handler {
	t.Helper()
	h := admin.NewHandler(admin.Config{
		Source: c, Lines: c, Peers: c, Control: c, Tickets: admintest.NewTickets(map[string]int{"p": 9}), Tokens: func() []string { return tokensOf(token) }, Metrics: http.NotFoundHandler(),
	})
	return h
}

// came sets the local and the remote address of a request.
func came(local, remote string) func(*http.Request) {
	return func(r *http.Request) {
		addr, err := net.ResolveTCPAddr("tcp", local)
		if err != nil {
			panic(err)
		}
		r.RemoteAddr = remote
		*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
	}
}

func with(key, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

var (
	here  = came("127.0.0.1:9080", "127.0.0.1:5000")
	there = came("10.0.0.1:9080", "10.0.0.9:5000")
)

func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		path, body string
		err        error
		code       int
		did, says  string
	}{
		"k":              {"/api/v1/pools/p", `{"k":6,"was":3}`, nil, 200, "k p 6 3", `"k":6`},
		"k of whatever":  {"/api/v1/pools/p", `{"k":6}`, nil, 200, "k p 6 0", `"k":6`},
		"an odd name":    {"/api/v1/pools/a%2Fb%20c", `{"k":6}`, nil, 200, "k a/b c 6 0", `"a/b c"`},
		"no k":           {"/api/v1/pools/p", `{}`, nil, 400, "", "at least 1"},
		"k 0":            {"/api/v1/pools/p", `{"k":0}`, nil, 400, "", "at least 1"},
		"k negative":     {"/api/v1/pools/p", `{"k":-3}`, nil, 400, "", "at least 1, not -3"},
		"k in words":     {"/api/v1/pools/p", `{"k":"six"}`, nil, 400, "", "k"},
		"was negative":   {"/api/v1/pools/p", `{"k":3,"was":-1}`, nil, 400, "", "absent"},
		"two operators":  {"/api/v1/pools/p", `{"k":6,"was":3}`, fmt.Errorf("%w: k is 5 by now", admin.ErrConflict), 409, "k p 6 3", "k is 5 by now"},
		"unknown pool":   {"/api/v1/pools/x", `{"k":6}`, fmt.Errorf("%w: no pool x", admin.ErrUnknown), 404, "k x 6 0", "no pool x"},
		"no majority":    {"/api/v1/pools/p", `{"k":6}`, fmt.Errorf("%w: no leader", admin.ErrUnavailable), 503, "k p 6 0", "no leader"},
		"drain":          {"/api/v1/drain", "", nil, 202, "drain", "draining"},
		"leave":          {"/api/v1/leave", "", nil, 202, "leave", "leaving"},
		"suspend":        {"/api/v1/members/gw-2/suspend", "", nil, 202, "suspend gw-2", "suspended"},
		"suspend nobody": {"/api/v1/members/x/suspend", "", fmt.Errorf("%w: no gateway x", admin.ErrUnknown), 404, "suspend x", "no gateway x"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &fakeControl{err: tc.err}
			a := ask(t, c.handler(t, ""), "POST", tc.path, tc.body, here)
			if did := strings.Join(c.did, ","); a.code != tc.code || did != tc.did || !strings.Contains(a.text, tc.says) {
				t.Errorf("%d, did %q, %s; want %d, %q, %q", a.code, did, a.text, tc.code, tc.did, tc.says)
			}
		})
	}
}

// overSocket makes a request look as net/http shows a request over a Unix socket.
func overSocket(r *http.Request) {
	*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/kgate/admin.sock", Net: "unix"}))
	r.RemoteAddr = "@"
}

// guarded marks a request as the server of the gateway's own socket does.
func guarded(r *http.Request) { *r = *admin.OverGuardedSocket(r) }

func TestChangesNeedTheToken(t *testing.T) {
	bearer := with("Authorization", "Bearer s3cret")
	for name, tc := range map[string]struct {
		token  string
		change []func(*http.Request)
		code   int
	}{
		"this machine":                {"s3cret", []func(*http.Request){here}, 401}, // a proxy here may ask for anybody
		"this machine, with token":    {"s3cret", []func(*http.Request){here, bearer}, 202},
		"our socket":                  {"s3cret", []func(*http.Request){overSocket, guarded}, 202},
		"our socket, behind proxy":    {"s3cret", []func(*http.Request){overSocket, guarded, with("X-Forwarded-Host", "h")}, 401},
		"our socket, behind another":  {"s3cret", []func(*http.Request){overSocket, guarded, with("Via", "1.1 h")}, 401},
		"the same, with token":        {"s3cret", []func(*http.Request){overSocket, guarded, with("Via", "1.1 h"), bearer}, 202},
		"the same, none can":          {"", []func(*http.Request){overSocket, guarded, with("Via", "1.1 h")}, 403},
		"a program's socket":          {"s3cret", []func(*http.Request){overSocket}, 401},
		"a socket, no token":          {"", []func(*http.Request){overSocket}, 202},
		"this machine, no token":      {"", []func(*http.Request){here}, 202},
		"this machine, behind proxy":  {"s3cret", []func(*http.Request){here, with("X-Forwarded-For", "10.0.0.9")}, 401},
		"another machine":             {"s3cret", []func(*http.Request){there}, 401},
		"another, with token":         {"s3cret", []func(*http.Request){there, bearer}, 202},
		"another, lower case":         {"s3cret", []func(*http.Request){there, with("Authorization", "bearer s3cret")}, 202},
		"another, wrong token":        {"s3cret", []func(*http.Request){there, with("Authorization", "Bearer s3cre")}, 401},
		"another, no scheme":          {"s3cret", []func(*http.Request){there, with("Authorization", "s3cret")}, 401},
		"another, basic":              {"s3cret", []func(*http.Request){there, with("Authorization", "Basic s3cret")}, 401},
		"another, none can":           {"", []func(*http.Request){there}, 403},
		"another, empty token":        {"", []func(*http.Request){there, with("Authorization", "Bearer ")}, 403},
		"from nowhere":                {"s3cret", nil, 401},
		"a page on the visitor's own": {"s3cret", []func(*http.Request){here, with("Origin", "http://evil.example")}, 403},
		"a page that was let through": {"s3cret", []func(*http.Request){there, bearer, with("Sec-Fetch-Site", "cross-site")}, 403},
		"a name made to point here":   {"s3cret", []func(*http.Request){here, func(r *http.Request) { r.Host = "evil.example" }}, 421},
	} {
		t.Run(name, func(t *testing.T) {
			c := &fakeControl{}
			a := ask(t, c.handler(t, tc.token), "POST", "/api/v1/drain", "", tc.change...)
			if a.code != tc.code || (len(c.did) > 0) != (tc.code == 202) {
				t.Errorf("%d, did %v, %s; want %d", a.code, c.did, a.text, tc.code)
			}
			if want := a.header.Get("WWW-Authenticate") != ""; want != (a.code == 401) {
				t.Errorf("%d with WWW-Authenticate %q", a.code, a.header.Get("WWW-Authenticate"))
			}
			body := `{"pool":"p"}`
			if tc.code == 202 {
				tc.code = 201
			}
			if a := ask(t, c.handler(t, tc.token), "POST", at, body, tc.change...); a.code != tc.code {
				t.Errorf("ticket: %d, %s; want %d", a.code, a.text, tc.code)
			}
		})
	}
	// Reading is free, of tickets too.
	c := &fakeControl{}
	if a := ask(t, c.handler(t, "s3cret"), "GET", at+"/aaaa-1", "", there); a.code != 404 {
		t.Errorf("%d, %s", a.code, a.text)
	}
	if a := ask(t, c.handler(t, "s3cret"), "GET", "/api/v1/drain", "", there); a.code != 405 {
		t.Errorf("%d, %s", a.code, a.text)
	}
}

// tokensOf returns the tokens of a gateway with this token; none if it is empty.
func tokensOf(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"the-next-token-of-this-gateway", token}
}
