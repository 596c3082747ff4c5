package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/downstream"
	"github.com/kgate/kgate/proxy/http1"
)

// TestClientAddr: the client is who the trusted proxies say it is, and nobody
// else is believed.
func TestClientAddr(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tt := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"no proxy":                    {"192.0.2.1:4000", nil, "192.0.2.1"},
		"spoofed":                     {"192.0.2.1:4000", []string{"198.51.100.7"}, "192.0.2.1"},
		"one proxy":                   {"10.0.0.1:4000", []string{"198.51.100.7"}, "198.51.100.7"},
		"spoofed before a proxy":      {"10.0.0.1:4000", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		"spoofed in a line before":    {"10.0.0.1:4000", []string{"203.0.113.9", "198.51.100.7"}, "198.51.100.7"},
		"two proxies":                 {"10.0.0.1:4000", []string{"203.0.113.9, 198.51.100.7,10.0.0.2"}, "198.51.100.7"},
		"two proxies, two lines":      {"[fd00::1]:4000", []string{"198.51.100.7", "10.0.0.2"}, "198.51.100.7"},
		"nobody but proxies":          {"10.0.0.1:4000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"a proxy that says nothing":   {"10.0.0.1:4000", nil, "10.0.0.1"},
		"an empty line":               {"10.0.0.1:4000", []string{""}, "10.0.0.1"},
		"with a port":                 {"10.0.0.1:4000", []string{"198.51.100.7:1234"}, "198.51.100.7"},
		"IPv6 in brackets":            {"10.0.0.1:4000", []string{"[2001:db8::1]"}, "2001:db8::1"},
		"IPv6 with a port":            {"10.0.0.1:4000", []string{"[2001:db8::1]:1234"}, "2001:db8::1"},
		"unreadable":                  {"10.0.0.1:4000", []string{"198.51.100.7, unknown"}, "10.0.0.1"},
		"unreadable before the proxy": {"10.0.0.1:4000", []string{"_hidden, 10.0.0.2"}, "10.0.0.2"},
		"IPv4 in IPv6":                {"[::ffff:10.0.0.1]:4000", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
	} {
		var fields http1.Fields
		for _, line := range tt.forwarded {
			fields.Add("X-Forwarded-For", line)
		}
		if got := clientAddr(downstream.ParseAddr(tt.remote), fields, trusted).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// asker notes who asks, and lets nobody in.
type asker struct {
	refuser
	clients []string
	spans   []string
}

func (a *asker) Acquire(ctx context.Context, req admission.Request) (Slot, error) {
	a.clients, a.spans = append(a.clients, req.Client), append(a.spans, req.Span)
	return a.refuser.Acquire(ctx, req)
}

// A client that is named has the key of its requests.
func TestClientKeyOfAName(t *testing.T) {
	byHeader, byAddress, byLogin := &Pool{ClientHeader: "X-Key"}, &Pool{}, &Pool{ClientHeader: "authorization"}
	for _, tt := range []struct {
		pool *Pool
		name string
		want string
	}{
		{byHeader, "gold", digest("gold")},
		{byHeader, "192.0.2.1", digest("192.0.2.1")},
		{byAddress, "192.0.2.1", "192.0.2.1"},
		{byAddress, "::ffff:192.0.2.1", "192.0.2.1"},
		{byAddress, "2001:db8::1", "2001:db8::"},
		{byAddress, "gold", digest("gold")},
		{byLogin, "Bearer gold", byLogin.ClientKey("bEARER  gold")},
		{byLogin, "Bearer gold", digest("bearer gold")},
		{byLogin, "Bearer Gold", digest("bearer Gold")},
		{byLogin, "Gold-Key", digest("gold-key")},
		{byHeader, "Two words", digest("Two words")},
	} {
		if got := tt.pool.ClientKey(tt.name); got != tt.want {
			t.Errorf("header %q: %q is %q, want %q", tt.pool.ClientHeader, tt.name, got, tt.want)
		}
	}
	h, err := New(Config{Admitter: new(asker), Pools: []Pool{{Name: "p", ClientHeader: "Authorization"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for pool, want := range map[string]string{"p": digest("bearer gold"), "unknown": digest("Bearer  gold")} {
		if got := h.ClientKey(pool, "Bearer  gold"); got != want {
			t.Errorf("pool %s: %q, want %q", pool, got, want)
		}
	}
}

// TestClientKey: what is one client's has one key, and nobody gets another's.
func TestClientKey(t *testing.T) {
	for name, tt := range map[string]struct {
		pool Pool
		// first and second are a client's address, and X-Key if not empty.
		first, second [2]string
		same          bool
	}{
		"one address":          {Pool{}, [2]string{"192.0.2.1"}, [2]string{"192.0.2.1"}, true},
		"two addresses":        {Pool{}, [2]string{"192.0.2.1"}, [2]string{"192.0.2.2"}, false},
		"one IPv6 network":     {Pool{}, [2]string{"2001:db8::1"}, [2]string{"2001:db8::ffff:1"}, true},
		"two IPv6 networks":    {Pool{}, [2]string{"2001:db8::1"}, [2]string{"2001:db8:0:1::1"}, false},
		"a header not asked":   {Pool{}, [2]string{"192.0.2.1", "a"}, [2]string{"192.0.2.1", "b"}, true},
		"one header":           {Pool{ClientHeader: "x-key"}, [2]string{"192.0.2.1", "a"}, [2]string{"192.0.2.2", "a"}, true},
		"two headers":          {Pool{ClientHeader: "X-Key"}, [2]string{"192.0.2.1", "a"}, [2]string{"192.0.2.1", "b"}, false},
		"without, by address":  {Pool{ClientHeader: "X-Key"}, [2]string{"192.0.2.1"}, [2]string{"192.0.2.2"}, false},
		"another's address":    {Pool{ClientHeader: "X-Key"}, [2]string{"192.0.2.1"}, [2]string{"192.0.2.2", "192.0.2.1"}, false},
		"one header twice":     {Pool{ClientHeader: "X-Key"}, [2]string{"192.0.2.1", "a\nb"}, [2]string{"192.0.2.1", "a\nc"}, true},
		"twice, and once":      {Pool{ClientHeader: "X-Key"}, [2]string{"192.0.2.1", "a\na"}, [2]string{"192.0.2.1", "a"}, false},
		"long and nearly same": {Pool{ClientHeader: "X-Key"}, [2]string{"192.0.2.1", strings.Repeat("a", 1000)}, [2]string{"192.0.2.1", strings.Repeat("a", 1001)}, false},
	} {
		a := new(asker)
		tt.pool.Name, tt.pool.Upstreams, tt.pool.TellClients = "p", []*url.URL{{Scheme: "http", Host: "h"}}, true
		h, err := New(Config{Admitter: a, Pools: []Pool{tt.pool}, Routes: []Route{{Pool: "p"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range [][2]string{tt.first, tt.second} {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(c[0]), 4000).String()
			if c[1] != "" {
				r.Header["X-Key"] = strings.Split(c[1], "\n")
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		if (a.clients[0] == a.clients[1]) != tt.same || len(a.clients[0]) > 40 || len(a.clients[1]) > 40 {
			t.Errorf("%s: keys %q", name, a.clients)
		}
		h.Close()
	}
}

// TestTicketAsk: the ticket API learns who asks it, and for how long the pool lets it
// have a slot; only there.
func TestTicketAsk(t *testing.T) {
	var got []admission.Request
	tickets := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = []admission.Request{TicketRequest(r.Context(), "p"), TicketRequest(r.Context(), "alike"), TicketRequest(r.Context(), "unknown"), TicketRequest(t.Context(), "p")}
	})
	up := []*url.URL{{Scheme: "http", Host: "h"}}
	h, err := New(Config{
		Admitter: open{}, TicketHandler: tickets,
		Pools:  []Pool{{Name: "p", Upstreams: up, TellClients: true, HoldMax: time.Second}, {Name: "alike", Upstreams: up}},
		Routes: []Route{{Upstreams: up}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/.kgate/tickets", nil))
	const client = "192.0.2.1" // httptest's
	want := []admission.Request{{Pool: "p", Client: client, Counted: true, HoldMax: time.Second}, {Pool: "alike", Client: client, Counted: true}, {Pool: "unknown"}, {Pool: "p"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
