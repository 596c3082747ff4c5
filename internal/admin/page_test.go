package admin

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPage: the page shows the status, and text that peers and clients may have chosen is escaped.
func TestPage(t *testing.T) {
	source := &fixedSource{status: example(), entries: exampleEntries(), ready: true}
	text := request{path: "/"}.to(t, newTestHandler(t, source)).text
	checkGolden(t, "testdata/page.html", text)
	const nasty = `"><script>alert('x')</script>`
	s := example()
	s.Version, s.Gateway = nasty, Gateway{Name: nasty, Reason: nasty}
	s.Cluster.Leader = nasty
	s.Events = []Event{{At: time.Now(), Text: nasty}}
	s.Cluster.Members = []Member{{Name: nasty, Addr: nasty, Status: nasty, Successor: nasty, RingPlace: 1, Copies: []string{nasty}}}
	s.Pools = []Pool{{Name: nasty, Binding: nasty, Home: nasty, K: 3}}
	e := Entry{ID: nasty, Gateway: nasty, Client: nasty, Method: nasty, Path: nasty, Trace: nasty, Seconds: 1}
	ticket := Entry{ID: nasty, Gateway: nasty, Ticket: true, Note: nasty}
	source = &fixedSource{status: s, entries: map[string]Entries{nasty: {Waiting: []Entry{e, ticket}, Holding: []Entry{e}}}}
	text = request{path: "/"}.to(t, newTestHandler(t, source)).text
	if n := strings.Count(text, "<script"); n != 1 || strings.Contains(text, `"><`+"script>alert") {
		t.Errorf("%d scripts; not escaped:\n%s", n, text)
	}
	if n := strings.Count(text, "&lt;script&gt;"); n < 20 {
		t.Errorf("only %d names are shown, escaped", n)
	}
	empty := request{path: "/"}.to(t, newTestHandler(t, &fixedSource{})).text
	for _, want := range []string{"No pools are agreed on yet.", "No view yet.", "no leader", "This gateway admits nothing"} {
		if !strings.Contains(empty, want) {
			t.Errorf("%q is missing of an empty page:\n%s", want, empty)
		}
	}
}

// TestPageNeedsNobodyElse: the page loads files from this address only, and has nothing that its
// policy forbids.
func TestPageNeedsNobodyElse(t *testing.T) {
	h := newTestHandler(t, &fixedSource{status: example(), entries: exampleEntries(), ready: true})
	for _, path := range []string{"/", "/assets/page.css", "/assets/page.js", "/assets/icon.svg"} {
		text := strings.ReplaceAll(request{path: path}.to(t, h).text, "http://www.w3.org/2000/svg", "")
		text = strings.ReplaceAll(text, `<a href="https://github.com/kgate/kgate/`, "") // a link is not loaded
		for _, outside := range []string{"http://", "https://", "@import", "url(", " style=", "<style", "onclick", "eval(", "innerHTML"} {
			if strings.Contains(text, outside) {
				t.Errorf("%s has %s", path, outside)
			}
		}
	}
}

// TestEvents: an event has the changing part as the page itself has it.
func TestEvents(t *testing.T) {
	h := newTestHandler(t, &fixedSource{status: example(), entries: exampleEntries(), ready: true})
	s := httptest.NewServer(h)
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	page := request{path: "/"}.to(t, h).text
	for range 2 {
		if !lines.Scan() || lines.Text() != "event: live" || !lines.Scan() {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
		var part string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &part); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page, part) || !strings.HasPrefix(part, "<header>") {
			t.Fatalf("the page has no such part:\n%s", part)
		}
		lines.Scan() // the empty line after it
	}
}

func TestSpark(t *testing.T) {
	values := make([]*float64, 5)
	if s := newSpark(values); s != nil {
		t.Errorf("of nothing: %+v", s)
	}
	one, two := 1.0, 2.0
	values[1], values[2], values[4] = &two, &one, &one
	s := newSpark(values)
	if want := "M75.0 3.0L150.0 29.5h.1M300.0 29.5h.1"; s.Line != want || s.Max != 2 || s.Now != 1 || !s.HasNow {
		t.Errorf("%+v, want the line %s", s, want)
	}
	zero := 0.0
	if s := newSpark([]*float64{&zero}); s.Line != "M0.0 56.0h.1" {
		t.Errorf("of zero: %s", s.Line)
	}
}

// TestHappened: a curve has the marks of its own pool and of the cluster, and the list
// the newest events.
func TestHappened(t *testing.T) {
	now := time.Now()
	s := Status{Pools: []Pool{{Name: "p"}, {Name: "q"}}}
	one := 1.0
	for i := range s.Pools {
		s.Pools[i].Fleet.Past.SpreadMillis = []*float64{&one}
	}
	s.Events = []Event{
		{At: now.Add(-time.Hour), Text: "long ago"},
		{At: now.Add(-10 * time.Minute), Text: "gw-3 is lost"},
		{At: now.Add(-5 * time.Minute), Pool: "q", Text: "k of q"},
		{At: now.Add(time.Second), Text: "gw-3 joined"},
	}
	v := newView(s, nil, now)
	lost, k, joined := mark{100, "gw-3 is lost"}, mark{200, "k of q"}, mark{300, "gw-3 joined"}
	for i, want := range [][]mark{{lost, joined}, {lost, k, joined}} {
		if got := v.Pools[i].Spark.Marks; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", s.Pools[i].Name, got, want)
		}
	}
	if want := []happened{{"just now", "gw-3 joined"}, {"5 min ago", "k of q"}, {"10 min ago", "gw-3 is lost"}}; !slices.Equal(v.Newest, want) {
		t.Errorf("%v, want %v", v.Newest, want)
	}
}

func TestSquares(t *testing.T) {
	for _, tc := range []struct {
		p    Pool
		want string
	}{
		{Pool{K: 3}, "free free free"},
		{Pool{K: 3, Withheld: 1, Fleet: PoolFleet{InFlight: 1}}, "used withheld free"},
		{Pool{K: 3, Fleet: PoolFleet{InFlight: 1, FreeTokens: 1, Missing: []string{"gw-3"}}}, "used unknown free"},
		{Pool{K: 1, Fleet: PoolFleet{InFlight: 2}}, "used used"}, // k was made smaller
	} {
		if got := strings.Join(squares(tc.p), " "); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.p, got, tc.want)
		}
	}
}
