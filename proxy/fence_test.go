package proxy

import (
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// TestFence: every admitted request carries its slot's fence, over each protocol,
// and a client cannot bring one, in whatever guise.
func TestFence(t *testing.T) {
	type seen struct{ header, guise, trailer []string }
	for _, scheme := range []string{"http", "h2c"} {
		got := make(chan seen, 10)
		g := newGateway(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			got <- seen{r.Header["Kgate-Fence"], r.Header["Kgate_fence"], r.Trailer["Kgate-Fence"]}
		}), func(c *Config) {
			c.Pools[0].Upstreams[0].Scheme = scheme
			c.Pools[0].Fence = true
			bare := c.Pools[0]
			bare.Name, bare.Fence = "bare", false
			c.Pools = append(c.Pools, bare)
			c.Routes = []Route{
				{Match: Match{PathPrefix: "/free"}, Upstreams: bare.Upstreams},
				{Pool: "bare", Match: Match{PathPrefix: "/bare"}},
				{Pool: "p"},
			}
		})
		h2 := h2cClient(t)
		for i, tt := range []struct {
			client *http.Client
			path   string
			fence  []string
		}{
			{g.client, "/", []string{"p/1/1"}},
			{h2, "/", []string{"p/1/2"}},
			{g.client, "/bare", nil},
			{g.client, "/free", nil},
			{h2, "/grpc.Service/Call", []string{"p/1/4"}},
		} {
			req := g.request("POST", tt.path, "Kgate-Fence", "p/9/9", "kgate_fence", "p/9/9", "Content-Type", "application/grpc", "Te", "trailers")
			req.Header["kgate_fence"] = []string{"p/9/9"}
			if tt.client == g.client {
				req.Header.Set("Connection", "Kgate-Fence") // would have it removed on the way
			}
			req.Body = io.NopCloser(strings.NewReader("body"))
			req.Trailer = http.Header{"Kgate-Fence": {"p/9/9"}, "X-Sum": {"kept"}}
			res, err := tt.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if s := <-got; !reflect.DeepEqual(s, seen{header: tt.fence}) {
				t.Errorf("%s, request %d: the upstream saw %+v, want %q", scheme, i, s, tt.fence)
			}
			g.sem.await(0, 0)
		}
	}
}

// TestFenceOfUpgrade: upgraded connections carry it as well.
func TestFenceOfUpgrade(t *testing.T) {
	fences := make(chan string, 1)
	echo := echoUpgrade(t)
	g := newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fences <- r.Header.Get("Kgate-Fence")
		echo(w, r)
	}), func(c *Config) { c.Pools[0].Fence = true })
	c := g.dial()
	c.send(upgradeRequest)
	c.response()
	if fence := <-fences; fence != "p/1/1" {
		t.Errorf("fence %q", fence)
	}
}
