package gateway_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
)

func config() gateway.Config {
	return gateway.Config{
		Config: kgate.Config{Name: "gw-1", Peers: kgate.Peers{Listen: "127.0.0.1:0"}},
		Pools:  []gateway.Pool{{Pool: kgate.Pool{Name: "p", K: 1}, Upstreams: []*url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}}},
	}
}

// TestConfigErrors name the field, of this package's part and of package kgate's.
func TestConfigErrors(t *testing.T) {
	for field, change := range map[string]func(*gateway.Config){
		"Pools[0].RateUp": func(c *gateway.Config) { c.Pools[0].RateUp = -1 },
		"Pools[0].K":      func(c *gateway.Config) { c.Pools[0].K = 0 },
		"Pools[0].Upstreams": func(c *gateway.Config) {
			c.Pools[0].Upstreams = []*url.URL{{Scheme: "http", Host: "127.0.0.1:1", Fragment: "k=2"}, {Scheme: "http", Host: "127.0.0.1:2"}}
		},
		"Config.Pools": func(c *gateway.Config) { c.Config.Pools = []kgate.Pool{{Name: "p", K: 1}} },
	} {
		cfg := config()
		change(&cfg)
		_, err := gateway.Start(t.Context(), cfg)
		if wrong := (*kgate.ConfigError)(nil); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestReload keeps what Start was told of the process, and takes the upstreams and rates; after
// the end all says so.
func TestReload(t *testing.T) {
	g, err := gateway.Start(t.Context(), config())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	if err := g.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer site.Close()
	at, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.Pools[0].Upstreams = []*url.URL{at}
	if err := g.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if g.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != http.StatusTeapot {
		t.Errorf("after a reload the answer is %d", w.Code)
	}
	if err := g.SetRate(t.Context(), "p", gateway.Rate{Down: 1 << 20}); err != nil {
		t.Error(err)
	}
	cfg.Pools[0].RateDown = -1
	if err := g.Reload(cfg); err == nil {
		t.Error("a negative rate")
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"SetRate": g.SetRate(t.Context(), "p", gateway.Rate{}), "SetPeerTLS": g.SetPeerTLS(nil), "Reload": g.Reload(config()),
	} {
		if !errors.Is(err, kgate.ErrClosed) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
	w = httptest.NewRecorder()
	if gateway.Admin(new(kgate.Node)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the page of a node that was not started: %d", w.Code)
	}
}
